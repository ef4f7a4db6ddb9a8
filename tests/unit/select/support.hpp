// What the selector's tests share.
#pragma once

#include <string>
#include <string_view>

#include "core/check.hpp"
#include "select/judge.hpp"
#include "select/names.hpp"

namespace rapt {

inline bool all_built(const Capability&) {
  return true;
}

inline AttentionSpec make_spec(int32_t head_dim = 128) {
  AttentionSpec spec;
  spec.num_query_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim_qk = head_dim;
  return spec;
}

// As if every kernel were built; "none" where nothing accepts.
inline std::string chosen(const AttentionSpec& spec, std::string_view device,
                          const SelectOptions& options = {}) {
  const DeviceInfo info = device_info(device);
  try {
    const Selection selection = select({spec, info, options}, all_built);
    return selection.version ? concat(to_string(selection.backend), " ", selection.version)
                             : to_string(selection.backend);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return "none";
  }
}

inline BackendVerdict verdict(BackendId backend, const AttentionSpec& spec, std::string_view device,
                              const SelectOptions& options = {}, IsBuilt is_built = all_built) {
  const DeviceInfo info = device_info(device);
  for (const Judgement& judgement : judge({spec, info, options}, is_built))
    if (judgement.verdict.backend == backend) return judgement.verdict;
  fail(ErrorCode::kInternal, "no verdict on ", to_string(backend));
}

// All reasons, one a line.
inline std::string reasons(BackendId backend, const AttentionSpec& spec, std::string_view device,
                           const SelectOptions& options = {}) {
  std::string text;
  for (const std::string& reason : verdict(backend, spec, device, options).reasons)
    text += reason + "\n";
  return text;
}

}  // namespace rapt
