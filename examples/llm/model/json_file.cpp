#include "llm/model/json_file.hpp"

#include <limits>
#include <set>
#include <vector>

#include "llm/model/failure.hpp"

namespace llm {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& file) {
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& parsed) {
    check_io(depth <= kMaxDepth, file, ": JSON nests deeper than ", kMaxDepth);
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      check_io(keys.back().insert(parsed.get<std::string>()).second, file, ": JSON key ",
               parsed.dump(), " appears twice");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    fail_io(file, ": is not valid JSON: ", error.what());
  }
}

const json& json_member(const json& object, const char* key) {
  static const json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::optional<int64_t> json_integer(const json& object, const char* key, const std::string& file) {
  const json& value = json_member(object, key);
  if (value.is_null()) return std::nullopt;
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  check_io(fits, file, ": ", key, " must be an integer below 2^63");
  return value.get<int64_t>();
}

std::optional<double> json_real(const json& object, const char* key, const std::string& file) {
  const json& value = json_member(object, key);
  if (value.is_null()) return std::nullopt;
  check_io(value.is_number(), file, ": ", key, " must be a number");
  return value.get<double>();
}

std::optional<bool> json_boolean(const json& object, const char* key, const std::string& file) {
  const json& value = json_member(object, key);
  if (value.is_null()) return std::nullopt;
  check_io(value.is_boolean(), file, ": ", key, " must be true or false");
  return value.get<bool>();
}

std::optional<std::string> json_text(const json& object, const char* key, const std::string& file) {
  const json& value = json_member(object, key);
  if (value.is_null()) return std::nullopt;
  check_io(value.is_string(), file, ": ", key, " must be a string");
  return value.get<std::string>();
}

}  // namespace llm
