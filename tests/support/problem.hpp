// A test problem: a spec, a batch's lengths, how the tensors lie in memory, and what they hold.
//
//   Problem problem{.spec = {.num_query_heads = 8, .num_kv_heads = 2, .head_dim_qk = 64},
//                   .requests = {{1, 17}, {5, 40}}};
//   Outcome outcome = run(problem, {"cpu"});               // support/tensors.hpp
//   EXPECT_EQ(compare(problem, outcome).mismatch, "");     // support/oracle.hpp
//
// Every value is a function of the seed, the request's id, the token, the head and the dimension
// alone: a request holds the same numbers alone or anywhere in any batch.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt::test {

struct RequestLengths {
  int32_t query_len = 0;
  int32_t kv_len = 0;
  int64_t id = -1;        // what its values are drawn from; -1 = its place in the batch
  int64_t first_key = 0;  // keys are the id's tokens from here on: a part of a longer context
};

// How the tensors lie in memory. The defaults are the plain case.
struct Layout {
  // Paged caches
  KvShape shape = KvShape::kPagesKv;
  KvLayout order = KvLayout::kNHD;
  int32_t num_layers = 0;     // 0 = no layer axis
  int32_t layer = 0;          // the one attended to; the others hold NaN
  int32_t manager_ratio = 1;  // kernel pages of a manager page; ids come in such runs
  bool permuted_pages = true;
  int64_t first_page = 0;    // ids start here: the pool below is never touched
  int64_t unused_pages = 2;  // in the pool, in no table; they hold NaN
  int32_t table_pad = 0;     // columns past those of the longest request; they hold -1 and 2^30
  std::optional<int32_t> table_pad_id{};                     // what those columns hold instead
  float unread_k = std::numeric_limits<float>::quiet_NaN();  // what slots of no visible key hold
  float unread_v = std::numeric_limits<float>::quiet_NaN();
  bool write_kv = false;  // the cache is filled by Attention::write_kv
  // Ragged
  int32_t kv_gap = 0;  // rows of NaN after each request's keys
  // All
  bool packed_qkv = false;  // q is a slice of rows [q | k | v], the rest NaN
  int32_t q_head_pad = 0;   // elements between heads of q, and of out
  int32_t out_head_pad = 0;
  int32_t padding_rows = 0;  // rows of q, out and lse past T
};

using ValueOf = std::function<float(int64_t id, int64_t token, int64_t head, int64_t dim)>;

struct Problem {
  AttentionSpec spec{};
  std::vector<RequestLengths> requests{};
  Layout layout{};
  uint64_t seed = 1;
  float q_amplitude = 1;  // of the normal distribution q is drawn from; k and v have 1
  // Values in place of random ones; rounded to the dtype when stored.
  ValueOf q{}, k{}, v{};
  std::vector<float> sinks{}, alibi_slopes{};                    // [Hq]
  std::vector<float> k_scale{}, v_scale{};                       // [1] or [Hkv]
  std::function<bool(int64_t id, int64_t i, int64_t j)> mask{};  // true = may be seen

  int64_t num_tokens() const;
  int64_t num_keys() const;  // of all requests
  int64_t id(size_t b) const { return requests[b].id < 0 ? int64_t(b) : requests[b].id; }
  DType kv_dtype() const;  // of the cache, or of ragged k and v
  // One line to recognise it by.
  std::string describe() const;
};

// A spec of the given heads and dims, for designated use in tests.
AttentionSpec make_spec(DType dtype, int32_t num_query_heads, int32_t num_kv_heads,
                        int32_t head_dim_qk, int32_t head_dim_vo = 0);

// What a problem's tensors hold, densely, as the dtype rounds it.
struct Values {
  std::vector<float> q;              // [T, Hq, Dqk]
  std::vector<float> k;              // [all keys, Hkv, Dqk], request after request
  std::vector<float> v;              // [all keys, Hkv, Dvo]
  std::vector<int64_t> query_start;  // [B + 1]
  std::vector<int64_t> kv_start;     // [B + 1], without gaps
  std::vector<float> sinks, alibi_slopes, k_scale, v_scale;  // empty unless the spec has them
  std::vector<uint8_t> mask;        // one byte per (request, i, j); empty unless custom_mask
  std::vector<int64_t> mask_start;  // [B + 1]
  std::vector<uint8_t> reachable;   // [all keys]: some query sees the key
};
Values values_of(const Problem& problem);

// The contract's sentence on which keys query i of query_len sees among kv_len, mask aside.
bool position_sees(const AttentionSpec& spec, int64_t i, int64_t j, int64_t query_len,
                   int64_t kv_len);

// Uniform in [0, 1) and standard normal numbers that belong to a key.
double uniform_of(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0);
double normal_of(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0);

}  // namespace rapt::test
