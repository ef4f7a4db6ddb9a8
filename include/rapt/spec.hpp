// What a layer's attention is: everything about it that does not change from step to step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rapt/dtype.hpp"
#include "rapt/export.hpp"

namespace rapt {

enum class AttentionKind : uint8_t {
  kDecoder,         // self-attention over a KV cache; causal unless said otherwise
  kEncoder,         // the encoder half of an encoder-decoder: both ways, no cache
  kEncoderOnly,     // a bidirectional model: both ways, no cache
  kEncoderDecoder,  // cross-attention: queries of the decoder over keys of the encoder
};

// "decoder", "encoder", "encoder_only", "encoder_decoder".
RAPT_API const char* to_string(AttentionKind kind);
RAPT_API std::optional<AttentionKind> parse_attention_kind(std::string_view name);

// Which scales dequantise the cache: k_scale multiplies scores, v_scale the output.
enum class KvScales : uint8_t { kNone, kPerTensor, kPerHead, kPerTokenHead };
RAPT_API const char* to_string(KvScales scales);

// A query at position p sees keys j with p - left <= j <= p + right; -1 means no limit on that
// side. Any other negative value is a literal bound, so (7, -8) is an empty band. A model's
// "sliding window of W tokens" includes the query itself: that is (W - 1, 0), see sliding_window().
struct Window {
  int64_t left = -1;
  int64_t right = -1;
  friend bool operator==(const Window&, const Window&) = default;
};

inline Window sliding_window(int64_t num_tokens) {
  return {num_tokens - 1, 0};
}

// Score of a visible (query, key) pair: s = scale * (q . k), then softcap * tanh(s / softcap), then
// the ALiBi bias -slope * |p - j|. Hidden pairs have probability 0. Query i of Lq stands at p = i +
// Lk - Lq (bottom-right alignment).
struct AttentionSpec {
  int32_t num_query_heads = 0;
  int32_t num_kv_heads = 0;              // divides num_query_heads; their quotient is the group
  int32_t head_dim_qk = 0;               // elements of a query or key row
  int32_t head_dim_vo = 0;               // elements of a value or output row; 0 = head_dim_qk
  DType dtype = DType::kBFloat16;        // of q, of out, and of k and v where there is no cache
  KvFormat kv_format = KvFormat::kAuto;  // of the cache
  int32_t page_size = 16;                // tokens per page, >= 1; 0 = no cache: ragged k and v

  AttentionKind kind = AttentionKind::kDecoder;
  std::optional<bool>
      causal{};  // unset: true for decoders, false for the other kinds, which refuse true
  Window window{};
  std::optional<float> scale{};  // unset: head_dim_qk^-0.5
  float softcap = 0;             // 0 = off; else in [1e-20, 1e20]
  bool alibi = false;            // run() is given one slope per query head
  bool sinks =
      false;  // run() is given one fp32 logit per query head that joins the denominator only
  bool custom_mask =
      false;  // run() is given one bit per (query, key), joined to causal and window by AND
  KvScales kv_scales = KvScales::kNone;
  bool needs_lse = false;        // run() writes the log-sum-exp
  bool batch_invariant = false;  // a request's bits do not depend on what else is in the batch

  int32_t group() const { return num_query_heads / num_kv_heads; }
  int32_t dim_vo() const { return head_dim_vo ? head_dim_vo : head_dim_qk; }
  bool is_causal() const { return causal.value_or(kind == AttentionKind::kDecoder); }
  bool is_paged() const { return page_size > 0; }
  // The cache's format with kAuto resolved to the query dtype's.
  RAPT_API KvFormat cache_format() const;
  RAPT_API float resolved_scale() const;
  // The window with causality folded in: right is at most 0 when causal.
  RAPT_API Window visible_band() const;
};

// Throws Error(kInvalidArgument) if a field is out of its range or two fields contradict each
// other. What no backend can do is not an error here but a reason in select().
RAPT_API void validate(const AttentionSpec& spec);

}  // namespace rapt
