// JSON out of files that nobody vouches for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace llm {

// Parses `text`; kIo naming the file and the place if it is no JSON, if an object has a key twice
// or if it nests deeper than any of the files read here.
nlohmann::json parse_json(std::string_view text, const std::string& file);

// Members of an object by name; nothing where the member is missing or null, kIo if it is of
// another type. `file` is for messages.
std::optional<int64_t> json_integer(const nlohmann::json& object, const char* key,
                                    const std::string& file);
std::optional<double> json_real(const nlohmann::json& object, const char* key,
                                const std::string& file);
std::optional<bool> json_boolean(const nlohmann::json& object, const char* key,
                                 const std::string& file);
std::optional<std::string> json_text(const nlohmann::json& object, const char* key,
                                     const std::string& file);
// The member itself, or null if it is missing.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

}  // namespace llm
