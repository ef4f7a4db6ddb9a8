#include "jit/compiled_kernel.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/check.hpp"

namespace rapt::jit {
namespace {

constexpr std::string_view kBlank = " \t\r";

// The number that ends where `phrase` begins; 0 without the phrase or a number.
int32_t number_before(std::string_view line, std::string_view phrase) {
  size_t at = line.find(phrase);
  if (at == line.npos) return 0;
  int64_t number = 0, place = 1;
  constexpr int64_t kMostDigits = 1'000'000'000;
  for (; at > 0 && std::isdigit(static_cast<unsigned char>(line[at - 1])) && place < kMostDigits;
       place *= 10)
    number += place * (line[--at] - '0');
  return static_cast<int32_t>(number);
}

bool contains(std::string_view line, std::string_view phrase) {
  return line.find(phrase) != line.npos;
}

// What every compilation says.
bool is_routine(std::string_view line) {
  constexpr std::array<std::string_view, 5> kRoutine = {"bytes gmem", "Compiling entry function",
                                                        "Function properties for", "Used ",
                                                        "Compile time = "};
  return std::any_of(kRoutine.begin(), kRoutine.end(),
                     [&](std::string_view phrase) { return contains(line, phrase); });
}

// "(C7510) ..." of "ptxas info    : (C7510) ...": what follows the first colon.
std::string_view message_of(std::string_view line) {
  const size_t begin = line.find_first_not_of(kBlank, line.find(':') + 1);
  return begin == line.npos ? std::string_view() : line.substr(begin);
}

}  // namespace

Resources parse_ptxas(std::string_view log) {
  Resources resources;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    if (contains(line, " bytes stack frame")) {
      resources.stack_bytes += number_before(line, " bytes stack frame");
      resources.spill_store_bytes += number_before(line, " bytes spill stores");
      resources.spill_load_bytes += number_before(line, " bytes spill loads");
    } else if (line.substr(0, 5) == "ptxas") {
      if (contains(line, ": Used ")) {
        resources.num_registers =
            std::max(resources.num_registers, number_before(line, " registers"));
        resources.static_shared_bytes += number_before(line, " bytes smem");
      }
      if (!is_routine(line)) resources.messages.emplace_back(message_of(line));
    }
  }
  return resources;
}

std::vector<std::string> problems(const Resources& resources) {
  std::vector<std::string> found;
  if (resources.spill_store_bytes || resources.spill_load_bytes)
    found.push_back(concat("spills: ", resources.spill_store_bytes, " bytes stored, ",
                           resources.spill_load_bytes, " bytes loaded"));
  for (const std::string& message : resources.messages)
    for (const char* code : {"(C7510)", "(C7511)", "(C7512)", "(C7517)"})
      if (contains(message, code)) found.push_back(message);
  return found;
}

void write(ByteWriter& to, const Resources& resources) {
  for (int32_t value : {resources.num_registers, resources.stack_bytes, resources.spill_store_bytes,
                        resources.spill_load_bytes, resources.static_shared_bytes})
    to.u32(static_cast<uint32_t>(value));
  to.u32(static_cast<uint32_t>(resources.messages.size()));
  for (const std::string& message : resources.messages) to.text(message);
}

Resources read_resources(ByteReader& from) {
  Resources resources;
  for (int32_t* value :
       {&resources.num_registers, &resources.stack_bytes, &resources.spill_store_bytes,
        &resources.spill_load_bytes, &resources.static_shared_bytes})
    *value = static_cast<int32_t>(from.u32());
  const uint32_t num_messages = from.u32();
  for (uint32_t i = 0; i < num_messages && from.ok(); i++)
    resources.messages.emplace_back(from.text());
  return resources;
}

}  // namespace rapt::jit
