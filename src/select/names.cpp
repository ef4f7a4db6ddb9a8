#include "select/names.hpp"

namespace rapt {

const char* to_string(BackendId id) {
  switch (id) {
    case BackendId::kFlashAttention:
      return "flash_attention";
    case BackendId::kFlashInfer:
      return "flashinfer";
    case BackendId::kPortable:
      return "portable";
    case BackendId::kFlex:
      return "flex";
    case BackendId::kTurboQuant:
      return "turboquant";
    case BackendId::kPagedAttention:
      return "paged_attention";
    case BackendId::kCpu:
      return "cpu";
    case BackendId::kReference:
      return "reference";
  }
  return "unknown";
}

std::optional<BackendId> parse_backend(std::string_view name) {
  for (BackendId id : kAllBackends)
    if (name == to_string(id)) return id;
  return std::nullopt;
}

const char* to_string(GraphSupport support) {
  switch (support) {
    case GraphSupport::kNever:
      return "never";
    case GraphSupport::kSingleTokenDecode:
      return "single_token_decode";
    case GraphSupport::kUniformBatch:
      return "uniform_batch";
    case GraphSupport::kAlways:
      return "always";
  }
  return "unknown";
}

std::string join_with_or(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); i++) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string to_string(const IntRange& range) {
  if (range.max == kUnbounded) return concat(range.min, " or more");
  return range.min == range.max ? concat(range.min) : concat(range.min, "-", range.max);
}

std::string compute_capability_name(int32_t compute_capability) {
  return concat(compute_capability / 10, ".", compute_capability % 10);
}

std::string to_string(const PageSizes& sizes) {
  if (sizes.multiple_of == 1) return "1 or more";
  if (sizes.multiple_of > 1) return concat("a multiple of ", sizes.multiple_of);
  return list_of(sizes.listed);
}

}  // namespace rapt
