#include "rapt/spec.hpp"

#include <algorithm>
#include <cmath>

#include "core/check.hpp"

namespace rapt {
namespace {

constexpr int32_t kMaxHeads = 1 << 16;
constexpr int32_t kMaxHeadDim = 1 << 14;
constexpr int32_t kMaxPageSize = 1 << 24;
constexpr float kMinSoftcap = 1e-20f,
                kMaxSoftcap = 1e20f;              // itself and its inverse, times any score
constexpr int64_t kMaxWindow = int64_t{1} << 40;  // far past any length, far from overflow

void check_in(int64_t value, int64_t low, int64_t high, const char* name) {
  check(value >= low && value <= high, name, " is ", value, ": must be in [", low, ", ", high, "]");
}

}  // namespace

const char* to_string(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kDecoder:
      return "decoder";
    case AttentionKind::kEncoder:
      return "encoder";
    case AttentionKind::kEncoderOnly:
      return "encoder_only";
    case AttentionKind::kEncoderDecoder:
      return "encoder_decoder";
  }
  return "unknown";
}

std::optional<AttentionKind> parse_attention_kind(std::string_view name) {
  for (AttentionKind kind : {AttentionKind::kDecoder, AttentionKind::kEncoder,
                             AttentionKind::kEncoderOnly, AttentionKind::kEncoderDecoder})
    if (name == to_string(kind)) return kind;
  return std::nullopt;
}

const char* to_string(KvScales scales) {
  switch (scales) {
    case KvScales::kNone:
      return "none";
    case KvScales::kPerTensor:
      return "per_tensor";
    case KvScales::kPerHead:
      return "per_head";
    case KvScales::kPerTokenHead:
      return "per_token_head";
  }
  return "unknown";
}

KvFormat AttentionSpec::cache_format() const {
  if (kv_format != KvFormat::kAuto) return kv_format;
  switch (dtype) {
    case DType::kFloat32:
      return KvFormat::kFloat32;
    case DType::kFloat16:
      return KvFormat::kFloat16;
    case DType::kFloat8E4M3:
      return KvFormat::kFp8E4M3;
    case DType::kFloat8E5M2:
      return KvFormat::kFp8E5M2;
    default:
      return KvFormat::kBFloat16;
  }
}

float AttentionSpec::resolved_scale() const {
  return scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim_qk)));
}

Window AttentionSpec::visible_band() const {
  if (!is_causal()) return window;
  return {window.left, window.right == -1 ? 0 : std::min<int64_t>(window.right, 0)};
}

void validate(const AttentionSpec& spec) {
  check_in(spec.num_query_heads, 1, kMaxHeads, "num_query_heads");
  check_in(spec.num_kv_heads, 1, kMaxHeads, "num_kv_heads");
  check(spec.num_query_heads % spec.num_kv_heads == 0, "num_query_heads is ", spec.num_query_heads,
        " and num_kv_heads is ", spec.num_kv_heads, ": query heads must be a multiple of KV heads");
  check_in(spec.head_dim_qk, 1, kMaxHeadDim, "head_dim_qk");
  check_in(spec.head_dim_vo, 0, kMaxHeadDim, "head_dim_vo");
  check_in(spec.page_size, 0, kMaxPageSize, "page_size");
  check(spec.dtype <= DType::kFloat8E5M2, "dtype is ", to_string(spec.dtype),
        ": queries must be of a floating-point type");
  check(spec.kv_format <= KvFormat::kTurboQuant3BitNc, "kv_format is ",
        static_cast<int>(spec.kv_format), ": no such format");
  check(spec.kind <= AttentionKind::kEncoderDecoder, "kind is ", static_cast<int>(spec.kind),
        ": no such kind");
  check(spec.kv_scales <= KvScales::kPerTokenHead, "kv_scales is ",
        static_cast<int>(spec.kv_scales), ": no such granularity");
  check_in(spec.window.left, -kMaxWindow, kMaxWindow, "window.left");
  check_in(spec.window.right, -kMaxWindow, kMaxWindow, "window.right");
  check(!spec.scale || std::isfinite(*spec.scale), "scale is ", spec.scale.value_or(0),
        ": must be finite");
  check(spec.softcap == 0 || (spec.softcap >= kMinSoftcap && spec.softcap <= kMaxSoftcap),
        "softcap is ", spec.softcap, ": must be in [", kMinSoftcap, ", ", kMaxSoftcap,
        "], or 0 for none");
  check(spec.kind == AttentionKind::kDecoder || !spec.is_causal(), "causal is set for kind ",
        to_string(spec.kind), ": only decoders are causal; leave it unset");
  const bool self_without_cache =
      spec.kind == AttentionKind::kEncoder || spec.kind == AttentionKind::kEncoderOnly;
  check(!self_without_cache || !spec.is_paged(), "page_size is ", spec.page_size, " for kind ",
        to_string(spec.kind), ": it has no cache; set page_size = 0");
  if (spec.is_paged()) return;
  check(storage_dtype(spec.cache_format()) == spec.dtype, "kv_format is ",
        to_string(spec.kv_format), " with page_size 0: there is no cache, and ragged k and v are ",
        to_string(spec.dtype), "; leave it auto");
  check(spec.kv_scales != KvScales::kPerTokenHead,
        "kv_scales is per_token_head with page_size 0: those scales live in the cache, and there "
        "is none");
}

}  // namespace rapt
