#include "jit/kernel_key.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace rapt::jit {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// As C++ has them, in ASCII: neither blank nor '=' can be in one, so that texts stay apart.
bool is_identifier(const std::string& text) {
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

void check_identifier(const char* what, const std::string& text) {
  check(is_identifier(text), what, " is \"", text, "\": must be an identifier");
}

std::string text_of(const KernelKey::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::get<std::string>(value);
}

}  // namespace

KernelKey::KernelKey(std::string kernel, Architecture architecture)
    : kernel_(std::move(kernel)), architecture_(architecture) {
  check_identifier("kernel", kernel_);
  text_ = kernel_ + " " + architecture_.name();
}

KernelKey& KernelKey::number(const std::string& name, int64_t value) {
  return add(name, value);
}
KernelKey& KernelKey::flag(const std::string& name, bool value) {
  return add(name, value);
}
KernelKey& KernelKey::type(const std::string& name, const std::string& value) {
  check_identifier("a type of a kernel's key", value);
  return add(name, value);
}

KernelKey& KernelKey::add(const std::string& name, Value value) {
  check_identifier("a name of a kernel's key", name);
  const auto place = std::lower_bound(
      values_.begin(), values_.end(), name,
      [](const auto& entry, const std::string& wanted) { return entry.first < wanted; });
  check(place == values_.end() || place->first != name, "kernel ", kernel_, ": \"", name,
        "\" is in its key already");
  values_.insert(place, {name, std::move(value)});
  text_ = kernel_ + " " + architecture_.name();
  for (const auto& [known, its] : values_) text_ += " " + known + "=" + text_of(its);
  return *this;
}

}  // namespace rapt::jit
