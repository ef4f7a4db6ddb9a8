#include "jit/kernel_source.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "jit/bytes.hpp"

namespace rapt::jit {
namespace {

std::string declaration(const std::string& name, const KernelKey::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return concat("constexpr long long ", name, " = ", *number, "ll;\n");
  if (const auto* flag = std::get_if<bool>(&value))
    return concat("constexpr bool ", name, " = ", *flag ? "true" : "false", ";\n");
  return concat("using ", name, " = ", std::get<std::string>(value), ";\n");
}

std::string unit_text(const KernelKey& key, const KernelSource& source) {
  std::string text = concat("// ", key.text(), "\n#include \"", source.header,
                            "\"\nnamespace rapt::device {\nnamespace key {\n");
  for (const auto& [name, value] : key.values()) text += declaration(name, value);
  text += "}\n";
  for (const Agreement& agreement : source.agreements)
    text += concat("static_assert((", agreement.expression, ") == ", agreement.value,
                   "ll, \"host and device disagree: the host has ", agreement.value, "\");\n");
  return text + source.entry + "\n}\n";
}

// The names in lines that begin with #include "...".
std::vector<std::string_view> included_by(std::string_view text) {
  constexpr std::string_view kInclude = "#include \"";
  std::vector<std::string_view> names;
  for (size_t at = text.find(kInclude); at != text.npos; at = text.find(kInclude, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const size_t begin = at + kInclude.size(), end = text.find('"', begin);
    if (end != text.npos) names.push_back(text.substr(begin, end - begin));
  }
  return names;
}

// In the order in which they are met.
std::vector<HeaderText> reached(const std::string& unit, std::span<const HeaderText> headers) {
  std::vector<HeaderText> found;
  const auto visit = [&](std::string_view includer, std::string_view text) {
    for (std::string_view name : included_by(text)) {
      const auto named = [&](const HeaderText& header) { return header.name == name; };
      if (std::any_of(found.begin(), found.end(), named)) continue;
      const auto header = std::find_if(headers.begin(), headers.end(), named);
      if (header == headers.end())
        fail(ErrorCode::kInternal, includer, " includes \"", name, "\", which is no device text");
      found.push_back(*header);
    }
  };
  visit("the kernel's unit", unit);
  for (size_t i = 0; i < found.size(); i++) visit(found[i].name, std::string_view(found[i].text));
  return found;
}

}  // namespace

TranslationUnit translation_unit(const KernelKey& key, const KernelSource& source) {
  TranslationUnit unit;
  unit.key = key.text();
  unit.architecture = key.architecture();
  unit.text = unit_text(key, source);
  unit.headers = reached(unit.text, source.headers);
  // What has no mark, like a lambda, is for the device. -v puts registers and spills in the log.
  unit.options = {"--gpu-architecture=" + unit.architecture.name(), "--std=c++20",
                  "--device-as-default-execution-space", "--ptxas-options=-v"};
  ByteWriter all;
  all.text(unit.key);
  all.text(unit.text);
  for (const HeaderText& header : unit.headers) all.text(header.name), all.text(header.text);
  for (const std::string& option : unit.options) all.text(option);
  unit.hash = hash_of(all.written());
  return unit;
}

}  // namespace rapt::jit
