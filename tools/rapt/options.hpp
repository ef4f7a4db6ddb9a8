// Values that several commands take as text, as Rapt's types. Each throws
// Error(kInvalidArgument) that names the option, the text and what it may be.
#pragma once

#include <string>

#include "rapt/rapt.hpp"

namespace rapt_tool {

// A device to run on, in the words of rapt::ContextOptions, which are lower case.
std::string parse_context_device_option(const std::string& text);
rapt::DType parse_dtype_option(const std::string& option, const std::string& text);
rapt::KvFormat parse_kv_format_option(const std::string& option, const std::string& text);
rapt::KvLayout parse_layout_option(const std::string& option, const std::string& text);
rapt::KvScales parse_kv_scales_option(const std::string& option, const std::string& text);
rapt::AttentionKind parse_kind_option(const std::string& option, const std::string& text);
rapt::CpuIsa parse_isa_option(const std::string& option, const std::string& text);
// Checks for CLI11, which takes NaN to be in every range, and -1 and 2^64 to be unsigned integers:
// what is wrong with the text, or "".
std::string refuse_nan(const std::string& text);
std::string refuse_past_uint64(const std::string& text);
// "L,R", each -1 for no limit.
rapt::Window parse_window_option(const std::string& option, const std::string& text);

}  // namespace rapt_tool
