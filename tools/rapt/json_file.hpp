// JSON out of files that anybody may have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rapt/error.hpp"

namespace rapt_tool {

// Throws nlohmann::json::exception for text that is no JSON, and rapt::Error(kIo) for JSON so deep
// that whoever walks it, as dump() does, would run out of stack.
inline nlohmann::json parse_json(std::string_view text, const std::string& path) {
  constexpr int kMaxDepth = 64;
  return nlohmann::json::parse(text, [&](int depth, nlohmann::json::parse_event_t, auto&) {
    if (depth > kMaxDepth)
      throw rapt::Error(rapt::ErrorCode::kIo,
                        path + ": JSON nests deeper than " + std::to_string(kMaxDepth));
    return true;
  });
}

}  // namespace rapt_tool
