// rapt pack: kernels compiled ahead into a file, and what such a file has.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "console.hpp"
#include "models_file.hpp"
#include "rapt/rapt.hpp"

namespace rapt_tool {
namespace {

struct PackArguments {
  std::vector<std::string> architectures;
  std::string models, out, list;
  int32_t threads = 0;
  bool json = false;
};

Json to_json(const rapt::PackedKernel& kernel) {
  return {{"key", kernel.key},
          {"registers", kernel.num_registers},
          {"stack_bytes", kernel.stack_bytes},
          {"spill_store_bytes", kernel.spill_store_bytes},
          {"spill_load_bytes", kernel.spill_load_bytes},
          {"static_shared_bytes", kernel.static_shared_bytes},
          {"dynamic_shared_bytes", kernel.dynamic_shared_bytes},
          {"messages", kernel.messages},
          {"image_bytes", kernel.image_bytes},
          {"packed_bytes", kernel.packed_bytes},
          {"hash", kernel.hash}};
}

Json to_json(const std::string& path, const std::vector<rapt::PackedKernel>& kernels) {
  Json json{{"pack", path}, {"kernels", Json::array()}};
  for (const rapt::PackedKernel& kernel : kernels) json["kernels"].push_back(to_json(kernel));
  return json;
}

// "core.rpk: 12 kernels, 0.3 MB of 1.2 MB, at most 255 registers".
void print_summary(const std::string& path, const std::vector<rapt::PackedKernel>& kernels) {
  int64_t packed = 0, whole = 0;
  int32_t registers = 0;
  for (const rapt::PackedKernel& kernel : kernels) {
    packed += kernel.packed_bytes, whole += kernel.image_bytes;
    registers = std::max(registers, kernel.num_registers);
  }
  std::printf("%s: %zu kernels, %.1f MB of %.1f MB, at most %d registers\n", path.c_str(),
              kernels.size(), static_cast<double>(packed) / 1e6, static_cast<double>(whole) / 1e6,
              registers);
}

void print_table(const std::vector<rapt::PackedKernel>& kernels) {
  std::printf("%9s %6s %6s %7s %7s %7s  %s\n", "registers", "stack", "spills", "shared", "bytes",
              "packed", "kernel");
  for (const rapt::PackedKernel& kernel : kernels) {
    std::printf("%9d %6d %6d %7d %7" PRId64 " %7" PRId64 "  %s\n", kernel.num_registers,
                kernel.stack_bytes, kernel.spill_store_bytes + kernel.spill_load_bytes,
                kernel.static_shared_bytes + kernel.dynamic_shared_bytes, kernel.image_bytes,
                kernel.packed_bytes, kernel.key.c_str());
    for (const std::string& message : kernel.messages) std::printf("%9s %s\n", "", message.c_str());
  }
}

std::vector<rapt::PackedKernel> build(const PackArguments& arguments) {
  std::optional<Progress> bar;  // begins when it is known how many there are
  return rapt::build_pack(arguments.out,
                          {.specs = load_models(arguments.models),
                           .architectures = arguments.architectures,
                           .num_threads = arguments.threads,
                           .progress = [&](int32_t done, int32_t total, std::string_view) {
                             if (!bar) bar.emplace("compiling", total);
                             bar->update(done);
                           }});
}

void run_pack(const PackArguments& arguments) {
  const bool lists = !arguments.list.empty();
  const std::string& path = lists ? arguments.list : arguments.out;
  if (!lists && (arguments.architectures.empty() || arguments.models.empty() || path.empty()))
    throw rapt::Error(rapt::ErrorCode::kInvalidArgument,
                      "rapt pack needs --arch, --models and --output, or --list alone");
  const std::vector<rapt::PackedKernel> kernels = lists ? rapt::list_pack(path) : build(arguments);
  if (arguments.json) return print_json(to_json(path, kernels));
  if (lists) print_table(kernels);
  print_summary(path, kernels);
}

}  // namespace

void add_pack(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "pack", "Compile the kernels of models ahead, without a GPU (docs/packs.md)");
  auto arguments = std::make_shared<PackArguments>();
  PackArguments& a = *arguments;
  command
      ->add_option("--arch", a.architectures,
                   "Compute capabilities: 80, 89, 90a, 100a, 120a, ... (comma-separated)")
      ->delimiter(',');
  command->add_option("--models", a.models, "File of models, as shapes/core.txt is");
  command->add_option("-o,--output", a.out, "The pack to write");
  command->add_option("--threads", a.threads, "That compile; 0 = the usable cores")
      ->check(CLI::Range(0, 4096));
  command->add_option("--list", a.list, "Print what this pack has, and compile nothing")
      ->excludes("--arch")
      ->excludes("--models")
      ->excludes("--output");
  command->add_flag("--json", a.json, "Print one JSON object: every kernel and what it takes");
  command->footer(
      "Examples:\n"
      "  rapt pack --arch 90a --models shapes/core.txt -o hopper.rpk\n"
      "  rapt pack --arch 80,89,90a,100a,120a --models shapes/core.txt -o core.rpk --threads 8\n"
      "  rapt pack --list core.rpk\n"
      "A kernel that spills registers fails the pack: exit code 1, and no file is written.");
  command->callback([arguments] { run_pack(*arguments); });
}

}  // namespace rapt_tool
