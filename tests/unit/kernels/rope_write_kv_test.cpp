// Writing a cache with rotated keys on the emulator against double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "cache_kernels.hpp"
#include "core/float16.hpp"

namespace rapt::emulator {
namespace {

constexpr int kQueryHeads = 3, kHeads = 2, kPages = 3, kPageSize = 5, kPositions = 40;

struct Case {
  int head_dim, rotary_dim, value_dim, chunk_bytes;
  bool interleaved, queries, wide_positions;
  Element element = Element::kBFloat16;
};

class RopeStep {
 public:
  explicit RopeStep(const Case& given) : case_(given) {
    const auto tokens = slots_.size();
    slot_mapping_ = memory_.allocate<long long>(tokens, "slots");
    std::copy(slots_.begin(), slots_.end(), slot_mapping_.begin());
    positions_ = memory_.allocate<int>(tokens * (given.wide_positions ? 2 : 1), "positions");
    for (size_t t = 0; t < tokens; t++) {
      if (given.wide_positions)
        reinterpret_cast<long long*>(positions_.data())[t] = position_[t];
      else
        positions_[t] = position_[t];
    }
    cos_sin_ = memory_.allocate<float>(static_cast<size_t>(kPositions * given.rotary_dim), "cos");
    const int pairs = given.rotary_dim / 2;
    for (int p = 0; p < kPositions; p++)
      for (int i = 0; i < pairs; i++) {
        cos_sin_[p * given.rotary_dim + i] = static_cast<float>(std::cos(p * 0.7 + i * 1.1));
        cos_sin_[p * given.rotary_dim + pairs + i] =
            static_cast<float>(std::sin(p * 0.7 + i * 1.1));
      }
    q_ = rows(tokens * kQueryHeads, given.head_dim, "q");
    k_ = rows(tokens * kHeads, given.head_dim, "k");
    v_ = rows(tokens * kHeads, given.value_dim, "v");
    cache_k_ = cache(given.head_dim, "cache k");
    cache_v_ = cache(given.value_dim, "cache v");
    q_before_.assign(q_.begin(), q_.end());
  }

  void run() {
    const int k_row = 2 * case_.head_dim, v_row = 2 * case_.value_dim;
    device::RopeWriteKvParams params{};
    device::WriteKvParams& write = params.write;
    write.slots = slot_mapping_.data(), write.num_tokens = static_cast<int>(slots_.size());
    write.num_heads = kHeads, write.k_bytes = k_row, write.v_bytes = v_row;
    write.chunk_bytes = case_.chunk_bytes, write.page_size = kPageSize;
    write.k = bytes(k_), write.v = bytes(v_);
    write.cache_k = bytes(cache_k_), write.cache_v = bytes(cache_v_);
    write.k_head_stride = write.cache_k_head_stride = k_row;
    write.v_head_stride = write.cache_v_head_stride = v_row;
    write.k_token_stride = write.cache_k_token_stride = kHeads * k_row;
    write.v_token_stride = write.cache_v_token_stride = kHeads * v_row;
    write.cache_k_page_stride = kPageSize * kHeads * k_row;
    write.cache_v_page_stride = kPageSize * kHeads * v_row;
    params.positions = positions_.data();
    params.position_bytes = case_.wide_positions ? 8 : 4;
    params.cos_sin = cos_sin_.data(), params.cos_sin_stride = case_.rotary_dim;
    params.rotary_dim = case_.rotary_dim, params.interleaved = case_.interleaved;
    params.num_query_heads = kQueryHeads;
    if (case_.queries) {  // in place
      params.q = params.q_out = bytes(q_);
      params.q_head_stride = params.q_out_head_stride = k_row;
      params.q_token_stride = params.q_out_token_stride = kQueryHeads * k_row;
    }
    run_rope_write_kv(memory_, {}, case_.element, params);
  }

  void expect_right() const {
    for (size_t t = 0; t < slots_.size(); t++)
      for (size_t h = 0; h < kQueryHeads; h++)
        expect_row(q_before_, q_, t * kQueryHeads + h, t * kQueryHeads + h,
                   case_.queries ? position_[t] : -1);
    std::vector<bool> written(kPages * kPageSize);
    for (size_t t = 0; t < slots_.size(); t++) {
      if (slots_[t] < 0) continue;
      const auto slot = static_cast<size_t>(slots_[t]);
      written[slot] = true;
      for (size_t h = 0; h < kHeads; h++) {
        expect_row(k_, cache_k_, t * kHeads + h, slot * kHeads + h, position_[t]);
        for (int d = 0; d < case_.value_dim; d++)
          EXPECT_EQ(cache_v_[(slot * kHeads + h) * case_.value_dim + d],
                    v_[(t * kHeads + h) * case_.value_dim + d]);
      }
    }
    for (size_t slot = 0; slot < written.size(); slot++)
      for (int i = 0; i < kHeads * case_.head_dim && !written[slot]; i++)
        EXPECT_EQ(cache_k_[slot * kHeads * case_.head_dim + i], kUntouched) << slot;
  }

 private:
  static constexpr uint16_t kUntouched = 0x5a5a;

  static unsigned char* bytes(std::span<uint16_t> elements) {
    return reinterpret_cast<unsigned char*>(elements.data());
  }
  std::span<uint16_t> rows(size_t count, int dim, const char* name) {
    const auto made = memory_.allocate<uint16_t>(count * static_cast<size_t>(dim), name);
    for (size_t i = 0; i < made.size(); i++) {
      const auto value = static_cast<float>(2 * std::sin(static_cast<double>(i) * 1.3 + dim));
      made[i] =
          case_.element == Element::kFloat16 ? float_to_float16(value) : float_to_bfloat16(value);
    }
    return made;
  }
  std::span<uint16_t> cache(int dim, const char* name) {
    const auto made =
        memory_.allocate<uint16_t>(static_cast<size_t>(kPages * kPageSize * kHeads * dim), name);
    std::fill(made.begin(), made.end(), kUntouched);
    return made;
  }
  double value(uint16_t element) const {
    return case_.element == Element::kFloat16 ? float16_to_float(element)
                                              : bfloat16_to_float(element);
  }

  // Row `to` is row `from`, rotated; position -1: as it is.
  void expect_row(std::span<const uint16_t> source, std::span<const uint16_t> target, size_t from,
                  size_t to, int position) const {
    const int dim = case_.head_dim, pairs = position < 0 ? 0 : case_.rotary_dim / 2;
    const uint16_t *in = &source[from * dim], *out = &target[to * dim];
    const double roundoff = case_.element == Element::kFloat16 ? 0x1p-11 : 0x1p-8;
    for (int i = 0; i < pairs; i++) {
      const int a = case_.interleaved ? 2 * i : i, b = a + (case_.interleaved ? 1 : pairs);
      const double angle = position * 0.7 + i * 1.1, x = value(in[a]), y = value(in[b]);
      const double first = x * std::cos(angle) - y * std::sin(angle);
      const double second = y * std::cos(angle) + x * std::sin(angle);
      EXPECT_NEAR(value(out[a]), first, roundoff * std::abs(first) + 3e-6) << a;
      EXPECT_NEAR(value(out[b]), second, roundoff * std::abs(second) + 3e-6) << b;
    }
    for (int d = 2 * pairs; d < dim; d++) EXPECT_EQ(out[d], in[d]) << d;
  }

  Case case_;
  const std::vector<long long> slots_{7, -1, 14, 0};
  const std::vector<int> position_{0, 3, kPositions - 1, 17};
  Memory memory_;
  std::span<long long> slot_mapping_;
  std::span<int> positions_;
  std::span<float> cos_sin_;
  std::span<uint16_t> q_, k_, v_, cache_k_, cache_v_;
  std::vector<uint16_t> q_before_;
};

TEST(RopeWriteKvKernel, rotates_keys_and_queries_and_nothing_else) {
  for (const bool interleaved : {false, true})
    for (const bool queries : {false, true})
      for (const Case& one : {Case{64, 32, 40, 16, interleaved, queries, false},
                              Case{32, 32, 32, 16, interleaved, queries, true, Element::kFloat16},
                              Case{11, 6, 7, 2, interleaved, queries, true},
                              Case{8, 8, 8, 2, interleaved, queries, false, Element::kFloat16}}) {
        SCOPED_TRACE(testing::Message() << one.head_dim << (interleaved ? " interleaved" : "")
                                        << (queries ? " queries" : ""));
        RopeStep step(one);
        step.run();
        step.expect_right();
      }
}

}  // namespace
}  // namespace rapt::emulator
