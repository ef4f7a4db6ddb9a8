// Who must pass a test: every backend the selector accepts here, at every instruction set and
// several thread counts. A new backend inherits the suite by being accepted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt::test {

struct Backend {
  std::string name;  // "reference", "cpu", ...
  std::optional<CpuIsa> isa{};
  int32_t num_threads = 1;
  std::string device = "cpu";    // as in ContextOptions
  std::string describe() const;  // "cpu avx2 x2", "flash_attention on cuda"
};

// A context for those options, made once and kept until the process ends.
Context& context_of(const Backend& backend);

// Levels this processor has, lowest first.
std::vector<CpuIsa> host_isas();

// Every accepted backend. The ones that do not look at the ISA ("reference") come once; the others
// at each level: with 2 threads, and at the highest level with 1 and 3 too.
std::vector<Backend> backends_for(const AttentionSpec& spec, const SelectOptions& options = {});

}  // namespace rapt::test
