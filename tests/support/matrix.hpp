// Who must pass a test: every backend the selector accepts here, at every instruction set and
// several thread counts, or on the GPU that RAPT_TEST_DEVICE names. A new backend inherits the
// suite by being accepted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt::test {

struct Backend {
  std::string name;  // "reference", "cpu", ...
  std::optional<CpuIsa> isa{};
  int32_t num_threads = 1;
  std::string device = "cpu";  // as in ContextOptions
  // Where a GPU's runs have their page table; unset: on the device for every other problem.
  std::optional<bool> table_on_device{};
  std::string describe() const;  // "cpu avx2 x2", "flash_attention on cuda"
};

// A context for those options, made once and kept until the process ends.
Context& context_of(const Backend& backend);

// What RAPT_TEST_DEVICE names: "cuda", "emulated-sm80"; else `otherwise`.
std::string test_device_or(const char* otherwise);
// The suite's: "cpu" unless another is named.
const std::string& test_device();
bool on_cpu();
bool on_emulator();

// The element types of q that the device's backends have: of emulated ones, which are slow, one.
std::vector<DType> dtypes();
// The finest of them: float32 where it is one.
DType finest_dtype();

// The values, or on an emulated device the first `count` of them, which is said.
void say_emulated(const char* what, long long part, long long whole);
template <typename T>
std::vector<T> some_of(std::vector<T> values, size_t count = 1) {
  if (!on_emulator() || values.size() <= count) return values;
  say_emulated("number of values", static_cast<long long>(count),
               static_cast<long long>(values.size()));
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}
// `whole`, or on an emulated device `part`, which is said.
template <typename T>
T sized(T whole, T part) {
  if (!on_emulator()) return whole;
  say_emulated("size", static_cast<long long>(part), static_cast<long long>(whole));
  return part;
}

// Levels this processor has, lowest first.
std::vector<CpuIsa> host_isas();

// Every accepted backend of the test's device. Those of a GPU come with page tables on the device
// and, if it is a real one, again with tables on the host. On the CPU the ones that do not look at
// the ISA ("reference") come once; the others at each level: with 2 threads, and at the highest
// level with 1 and 3 too.
std::vector<Backend> backends_for(const AttentionSpec& spec, const SelectOptions& options = {});

}  // namespace rapt::test
