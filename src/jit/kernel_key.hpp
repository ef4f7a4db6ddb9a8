// Which kernel: its name, what it is compiled for, and the value of everything it specialises.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "jit/architecture.hpp"

namespace rapt::jit {

// KernelKey("attention", {80}).number("head_dim_qk", 128).flag("causal", true).type("element",
// "Bf16"): a key determines its kernel's text, so the library's version of it has one image.
class KernelKey {
 public:
  // Of device text these are a constant, a bool, and the name of a type.
  using Value = std::variant<int64_t, bool, std::string>;

  KernelKey(std::string kernel, Architecture architecture);

  // Each throws Error(kInvalidArgument) for a name that is no identifier or is there already.
  KernelKey& number(const std::string& name, int64_t value);
  KernelKey& flag(const std::string& name, bool value);
  KernelKey& type(const std::string& name, const std::string& value);

  const std::string& kernel() const { return kernel_; }
  const Architecture& architecture() const { return architecture_; }
  // By name, in alphabetical order.
  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }
  // "attention sm_80 causal=true element=Bf16 head_dim_qk=128": equal for equal keys alone, in
  // whatever order the values were given.
  const std::string& text() const { return text_; }

 private:
  KernelKey& add(const std::string& name, Value value);

  std::string kernel_;
  Architecture architecture_;
  std::vector<std::pair<std::string, Value>> values_;
  std::string text_;
};

}  // namespace rapt::jit
