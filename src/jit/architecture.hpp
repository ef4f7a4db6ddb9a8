// What a kernel is compiled for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rapt::jit {

// Code for compute capability `number`: "sm_80", "sm_90a", "sm_100f". Without a suffix it runs on
// later minors of the same major too; 'a' adds the features of that one alone (wgmma, tcgen05), and
// runs on it alone; 'f' adds those of its family, and runs on later minors.
struct Architecture {
  int32_t number = 0;  // 10 * major + minor
  char suffix = 0;     // 0, 'a' or 'f'

  std::string name() const;  // "sm_90a"
  bool runs_on(int32_t compute_capability) const;
  bool operator==(const Architecture&) const = default;
};

// Accepts "90a" and "sm_90a". Throws Error(kInvalidArgument) for anything else.
Architecture parse_architecture(std::string_view text);

}  // namespace rapt::jit
