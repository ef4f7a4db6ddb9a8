#include "emulator/driver/compiler.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/check.hpp"
#include "emulator/driver/embedded.hpp"
#include "emulator/driver/entry_names.hpp"
#include "emulator/driver/image.hpp"
#include "emulator/driver/process.hpp"
#include "jit/file.hpp"
#include "jit/hash.hpp"

namespace rapt::emulator {
namespace {

constexpr const char* kNamedBy = "RAPT_CXX";
constexpr size_t kMostLibraryBytes = size_t{256} << 20;

// -fsanitize=thread: ordinary loads and stores are calls of ours (instrument.cpp). The others are
// those of cmake/RaptEmulator.cmake; what is not optimised would have registers in memory. A
// library must be gone after dlclose(), which symbols that are unique to the process prevent.
const std::vector<std::string>& compile_options(bool is_clang) {
  static const std::vector<std::string> for_gcc = {
      "-std=c++20",        "-O2", "-fPIC",           "-fvisibility=hidden",
      "-fsanitize=thread", "-w",  "-fno-gnu-unique", "--param=tsan-instrument-func-entry-exit=0"};
  static const std::vector<std::string> for_clang = {
      "-std=c++20",        "-O2", "-fPIC",  "-fvisibility=hidden",
      "-fsanitize=thread", "-w",  "-mllvm", "-tsan-instrument-func-entry-exit=0"};
  return is_clang ? for_clang : for_gcc;
}

// Of the file of this library, which images are linked with.
std::string own_path() {
  Dl_info info = {};
  static const char here = 0;
  if (!dladdr(&here, &info) || !info.dli_fname)
    fail(ErrorCode::kInternal, "the emulator's library does not find its own file");
  return std::filesystem::canonical(info.dli_fname).string();
}

bool is_inside(const std::filesystem::path& name) {
  if (name.is_absolute()) return false;
  for (const std::filesystem::path& part : name)
    if (part == "..") return false;
  return true;
}

void put(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) fail(ErrorCode::kIo, "writing ", path.string());
}

// The driver's way to each kernel of the text.
std::string entries_text(std::string_view text) {
  std::string entries =
      "#include \"kernel.cu\"\n#include \"emulator/driver/entry.hpp\"\n"
      "using namespace rapt::device;\n";
  for (const std::string& name : entry_names(text)) {
    const std::string declaration = concat("const rapt::emulator::Entry rapt_emulated_", name);
    entries +=
        concat("extern \"C\" {\n__attribute__((visibility(\"default\"))) extern ", declaration,
               ";\n", declaration, " = rapt::emulator::EntryOf<", name, ">::kEntry;\n}\n");
  }
  return entries;
}

}  // namespace

uint64_t interface_version() {
  static const uint64_t version = [] {
    std::string all;
    for (const HeaderText& header : embedded_headers())
      all += concat(header.name, "\n", header.text);
    return jit::hash_of(all).low;
  }();
  return version;
}

HostCompiler::HostCompiler() {
  const char* named = std::getenv(kNamedBy);
  const bool is_named = named && *named;
  const std::vector<std::string> names = is_named
                                             ? std::vector<std::string>{named}
                                             : std::vector<std::string>{"c++", "g++", "clang++"};
  for (const std::string& name : names) {
    const auto found = find_program(name);
    if (!found) continue;
    path_ = found->string();
    const PrivateFolder folder;
    version_ = run_program({path_, "--version"}, folder.path()).output;
    return;
  }
  if (is_named)
    fail(ErrorCode::kMissingLibrary, "the environment variable ", kNamedBy, " names ", named,
         " as the C++ compiler of emulated kernels: there is no such program");
  fail(ErrorCode::kMissingLibrary,
       "no C++ compiler for emulated kernels: PATH has no c++, g++ or clang++, and the environment "
       "variable ",
       kNamedBy, " names none; install g++ 11 or clang 14, or a later one");
}

uint64_t HostCompiler::identity() const {
  std::string all = concat(interface_version(), "\n", path_, "\n", version_);
  for (const std::string& option : compile_options(version_.find("clang") != version_.npos))
    all += "\n" + option;
  return jit::hash_of(all).low;
}

HostCompiler::Result HostCompiler::compile(const Source& source) const {
  const PrivateFolder folder;
  const std::filesystem::path& root = folder.path();
  for (const HeaderText& header : embedded_headers()) put(root / header.name, header.text);
  for (const auto& [name, text] : source.headers) {
    check(is_inside(name), "a header is named \"", name, "\"");
    // The emulator's are in their place, wherever they are included from.
    if (name.substr(0, 4) == "ptx/") continue;
    put(root / "kernels" / name, text);
  }
  put(root / "kernel.cu", source.text);
  put(root / "entries.cpp", entries_text(source.text));

  std::vector<std::string> command = {path_};
  const bool is_clang = version_.find("clang") != version_.npos;
  command.insert(command.end(), compile_options(is_clang).begin(), compile_options(is_clang).end());
  // The emulator's ptx/ comes before the device's.
  for (const char* argument :
       {"-Iemulator", "-Ikernels", "-I.", "-c", "entries.cpp", "-o", "kernel.o"})
    command.emplace_back(argument);
  Ended ended = run_program(command, root);
  Result result{ended.ok, {}, std::move(ended.output)};
  if (!result.ok) return result;
  ended = run_program({path_, "-shared", "kernel.o", "-o", "kernel.so", own_path(), "-Wl,-z,defs"},
                      root);
  result.ok = ended.ok;
  result.log += ended.output;
  if (!result.ok) return result;
  const auto library = jit::read_file(root / "kernel.so", kMostLibraryBytes);
  if (!library) fail(ErrorCode::kIo, path_, " left no library");
  result.image = make_image(source.architecture, *library);
  return result;
}

}  // namespace rapt::emulator
