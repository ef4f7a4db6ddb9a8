// What a spec may hold, and what it says of itself.
#include "rapt/spec.hpp"

#include <cmath>
#include <limits>

#include "unit/problem/refusal.hpp"

namespace rapt {
namespace {

using test::refusal;
using test::says;

AttentionSpec good_spec() {
  return {.num_query_heads = 8, .num_kv_heads = 2, .head_dim_qk = 64};
}

std::string refused(const auto& change) {
  AttentionSpec spec = good_spec();
  change(spec);
  return refusal([&] { validate(spec); });
}

TEST(Spec, a_plain_one_is_accepted) {
  EXPECT_EQ(refused([](auto&) {}), "accepted");
}

TEST(Spec, heads_must_divide) {
  EXPECT_THAT(refused([](auto& s) { s.num_query_heads = 16, s.num_kv_heads = 5; }),
              says("num_query_heads is 16", "num_kv_heads is 5", "multiple"));
  EXPECT_THAT(refused([](auto& s) { s.num_query_heads = 1; }),
              says("num_query_heads is 1", "num_kv_heads is 2"));
  for (int32_t heads : {0, -1, (1 << 16) + 1}) {
    EXPECT_THAT(refused([&](auto& s) { s.num_query_heads = heads; }),
                says("num_query_heads is " + std::to_string(heads), "[1, 65536]"));
    EXPECT_THAT(refused([&](auto& s) { s.num_kv_heads = heads; }),
                says("num_kv_heads is " + std::to_string(heads), "[1, 65536]"));
  }
}

TEST(Spec, sizes_out_of_range_name_value_and_bound) {
  EXPECT_THAT(refused([](auto& s) { s.head_dim_qk = 0; }), says("head_dim_qk is 0", "[1, 16384]"));
  EXPECT_THAT(refused([](auto& s) { s.head_dim_qk = 16385; }), says("head_dim_qk is 16385"));
  EXPECT_THAT(refused([](auto& s) { s.head_dim_vo = -8; }),
              says("head_dim_vo is -8", "[0, 16384]"));
  EXPECT_THAT(refused([](auto& s) { s.page_size = -1; }), says("page_size is -1", "[0, 16777216]"));
  EXPECT_EQ(refused([](auto& s) { s.page_size = 1; }), "accepted");
  EXPECT_EQ(refused([](auto& s) { s.page_size = 544; }), "accepted");
}

TEST(Spec, numbers_must_be_finite_and_in_range) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (float value : {nan, inf, -inf}) {
    EXPECT_THAT(refused([&](auto& s) { s.scale = value; }), says("scale is ", "finite"));
    EXPECT_THAT(refused([&](auto& s) { s.softcap = value; }),
                says("softcap is ", "[1e-20, 1e+20]"));
  }
  EXPECT_THAT(refused([](auto& s) { s.softcap = -30; }), says("softcap is -30", "or 0 for none"));
  EXPECT_THAT(refused([](auto& s) { s.softcap = 3e38f; }), says("softcap is 3e+38"));
  EXPECT_THAT(refused([](auto& s) { s.softcap = 1e-40f; }), says("softcap is 9.99995e-41"));
  EXPECT_EQ(refused([](auto& s) { s.scale = 0.0f; }), "accepted");
  const int64_t far = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refused([&](auto& s) { s.window.left = far; }),
              says("window.left is 9223372036854775807", "[-1099511627776, 1099511627776]"));
  EXPECT_THAT(refused([&](auto& s) { s.window.right = -far; }),
              says("window.right is -9223372036854775807"));
}

TEST(Spec, types_must_exist_and_be_fit_for_queries) {
  for (DType dtype : {DType::kUInt8, DType::kInt32, DType::kInt64})
    EXPECT_THAT(refused([&](auto& s) { s.dtype = dtype; }),
                says(std::string("dtype is ") + to_string(dtype), "floating-point"));
  EXPECT_THAT(refused([](auto& s) { s.dtype = static_cast<DType>(77); }), says("dtype is unknown"));
  EXPECT_THAT(refused([](auto& s) { s.kv_format = static_cast<KvFormat>(77); }),
              says("kv_format is 77"));
  EXPECT_THAT(refused([](auto& s) { s.kind = static_cast<AttentionKind>(9); }), says("kind is 9"));
  EXPECT_THAT(refused([](auto& s) { s.kv_scales = static_cast<KvScales>(9); }),
              says("kv_scales is 9"));
}

TEST(Spec, only_decoders_are_causal) {
  for (AttentionKind kind :
       {AttentionKind::kEncoder, AttentionKind::kEncoderOnly, AttentionKind::kEncoderDecoder}) {
    auto change = [&](std::optional<bool> causal) {
      return refused([&](auto& s) { s.kind = kind, s.page_size = 0, s.causal = causal; });
    };
    EXPECT_THAT(change(true), says("causal", to_string(kind)));
    EXPECT_EQ(change(false), "accepted");
    EXPECT_EQ(change(std::nullopt), "accepted");
  }
}

TEST(Spec, encoders_have_no_cache_but_cross_attention_may) {
  for (AttentionKind kind : {AttentionKind::kEncoder, AttentionKind::kEncoderOnly})
    EXPECT_THAT(refused([&](auto& s) { s.kind = kind; }),
                says("page_size is 16", to_string(kind), "page_size = 0"));
  EXPECT_EQ(refused([](auto& s) { s.kind = AttentionKind::kEncoderDecoder; }), "accepted");
}

TEST(Spec, cache_options_without_a_cache_are_refused) {
  EXPECT_THAT(refused([](auto& s) { s.page_size = 0, s.kv_format = KvFormat::kFp8E4M3; }),
              says("kv_format is fp8_e4m3", "page_size 0", "bfloat16"));
  EXPECT_EQ(refused([](auto& s) { s.page_size = 0, s.kv_format = KvFormat::kBFloat16; }),
            "accepted");
  EXPECT_THAT(refused([](auto& s) { s.page_size = 0, s.kv_scales = KvScales::kPerTokenHead; }),
              says("per_token_head", "page_size 0"));
}

TEST(Spec, the_band_folds_causality_into_the_window) {  // public report E02
  auto band = [](Window window, std::optional<bool> causal) {
    AttentionSpec spec = good_spec();
    spec.window = window;
    spec.causal = causal;
    return spec.visible_band();
  };
  EXPECT_EQ(band({-1, -1}, true), (Window{-1, 0}));
  EXPECT_EQ(band({-1, -1}, {}), (Window{-1, 0})) << "decoders are causal unless said otherwise";
  EXPECT_EQ(band({-1, -1}, false), (Window{-1, -1}));
  EXPECT_EQ(band({-1, 0}, false), (Window{-1, 0}));
  EXPECT_EQ(band({31, 5}, true), (Window{31, 0}));
  EXPECT_EQ(band({7, -8}, true), (Window{7, -8})) << "an empty band stays empty";
  EXPECT_EQ(band({7, -8}, false), (Window{7, -8}));
  EXPECT_EQ(sliding_window(1), (Window{0, 0}));
  EXPECT_EQ(sliding_window(4096), (Window{4095, 0}));
}

TEST(Spec, defaults_resolve) {
  AttentionSpec spec = good_spec();
  EXPECT_FLOAT_EQ(spec.resolved_scale(), 0.125f);
  EXPECT_EQ(spec.dim_vo(), 64);
  EXPECT_EQ(spec.group(), 4);
  EXPECT_EQ(spec.cache_format(), KvFormat::kBFloat16);
  spec.dtype = DType::kFloat32;
  EXPECT_EQ(spec.cache_format(), KvFormat::kFloat32);
  spec.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(spec.cache_format(), KvFormat::kFp8E4M3);
  spec.kv_format = KvFormat::kFloat16;
  EXPECT_EQ(spec.cache_format(), KvFormat::kFloat16);
}

}  // namespace
}  // namespace rapt
