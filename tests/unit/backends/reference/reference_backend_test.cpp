// The reference backend against closed forms. The other backends are compared with fp64 too
// (tests/cases, tests/fuzz); this is what the fp64 itself stands on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"
#include "support/tensors.hpp"

namespace rapt::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Outcome reference(const Problem& problem, int32_t num_threads = 1) {
  const Outcome outcome = run(problem, Backend{"reference", std::nullopt, num_threads});
  EXPECT_EQ(outcome.fault, "") << problem.describe();
  return outcome;
}

AttentionSpec fp32_spec(int32_t num_query_heads, int32_t num_kv_heads, int32_t head_dim) {
  return make_spec(DType::kFloat32, num_query_heads, num_kv_heads, head_dim);
}

ValueOf constant(float value) {
  return [value](int64_t, int64_t, int64_t, int64_t) { return value; };
}

// Key j scores exactly scores[j] for every query and head: q is (1, 0, ...), the scale 1.
void set_scores(Problem& problem, const std::vector<float>& scores) {
  problem.spec.scale = 1.0f;
  problem.q = [](int64_t, int64_t, int64_t, int64_t dim) { return dim == 0 ? 1.0f : 0.0f; };
  problem.k = [scores](int64_t, int64_t token, int64_t, int64_t dim) {
    return dim == 0 ? scores[token] : 3.0f;  // what q's zeros must hide
  };
}

// Value row j is the j-th unit vector, so that out is the vector of probabilities.
void set_one_hot_values(Problem& problem) {
  problem.v = [](int64_t, int64_t token, int64_t, int64_t dim) {
    return token == dim ? 1.0f : 0.0f;
  };
}

// Rows of one token and head, summed to its probability vector and log-sum-exp.
struct Row {
  std::vector<double> probabilities;
  double lse;
};
Row softmax(const std::vector<double>& scores) {
  Row row{{}, 0};
  double sum = 0;
  for (double s : scores) sum += std::exp(s);
  for (double s : scores) row.probabilities.push_back(std::exp(s) / sum);
  row.lse = std::log(sum);
  return row;
}

// --- Oracle 1: with q = 0 every visible key weighs the same. ---

TEST(Reference, zero_queries_count_the_visible_keys) {
  const int32_t kLq = 7;
  for (int32_t page_size : {0, 1, 4, 16})
    for (int32_t kv_len : {0, 3, 7, 19})
      for (bool causal : {false, true})
        for (const Window window :
             {Window{-1, -1}, Window{-1, 0}, Window{2, -1}, Window{3, 1}, Window{0, 0},
              Window{5, -2}, Window{7, -8}, Window{0, -1}, Window{-3, 4}}) {
          Problem problem{.spec = fp32_spec(4, 2, 8), .requests = {{kLq, kv_len}, {1, 5}}};
          problem.spec.page_size = page_size;
          problem.spec.causal = causal;
          problem.spec.window = window;
          problem.q = constant(0);
          problem.v = [](int64_t, int64_t token, int64_t, int64_t) { return float(token); };
          const Outcome outcome = reference(problem);
          for (int32_t i = 0; i < kLq; i++) {
            double count = 0, sum = 0;
            for (int32_t j = 0; j < kv_len; j++) {
              const int32_t distance = j - (i + kv_len - kLq);  // how far ahead of the query
              const bool seen = (!causal || distance <= 0) &&
                                (window.left == -1 || -distance <= window.left) &&
                                (window.right == -1 || distance <= window.right);
              count += seen;
              sum += seen ? j : 0;
            }
            for (int64_t h = 0; h < 4; h++) {
              const float lse = outcome.lse[h * (kLq + 1) + i];
              ASSERT_FLOAT_EQ(std::exp(lse), float(count)) << problem.describe() << " row " << i;
              for (int64_t d = 0; d < 8; d++)
                ASSERT_FLOAT_EQ(outcome.out[(i * 4 + h) * 8 + d],
                                float(count > 0 ? sum / count : 0));
            }
          }
        }
}

// --- Oracle 2: one-hot values show the probabilities. ---

TEST(Reference, one_hot_values_show_the_softmax) {
  const std::vector<float> scores = {0.5f, -1.0f, 2.0f, 0.0f, 3.0f};
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    Problem problem{.spec = make_spec(dtype, 1, 1, 5), .requests = {{1, 5}}};
    set_scores(problem, scores);
    set_one_hot_values(problem);
    const Outcome outcome = reference(problem);
    const Row want = softmax({0.5, -1, 2, 0, 3});
    const double tolerance = dtype == DType::kFloat32   ? 1e-7
                             : dtype == DType::kFloat16 ? 3e-4
                                                        : 2e-3;
    for (int j = 0; j < 5; j++) EXPECT_NEAR(outcome.out[j], want.probabilities[j], tolerance);
    EXPECT_NEAR(outcome.lse[0], want.lse, 1e-6) << "natural logarithm, in fp32 for every dtype";
  }
}

TEST(Reference, softcap_then_alibi_in_that_order) {
  const std::vector<float> scores = {0.5f, -1.0f, 2.0f, 0.0f, 3.0f};
  Problem problem{.spec = fp32_spec(2, 1, 5), .requests = {{2, 5}}};
  set_scores(problem, scores);
  set_one_hot_values(problem);
  problem.spec.causal = false;
  problem.spec.scale = 0.5f;
  problem.spec.softcap = 1.5f;
  problem.spec.alibi = true;
  problem.alibi_slopes = {0.25f, 2.0f};
  const Outcome outcome = reference(problem);
  for (int i = 0; i < 2; i++)
    for (int h = 0; h < 2; h++) {
      std::vector<double> s;
      for (int j = 0; j < 5; j++)
        s.push_back(1.5 * std::tanh(0.5 * scores[j] / 1.5) -
                    problem.alibi_slopes[h] * std::abs(i + 3 - j));
      const Row want = softmax(s);
      for (int j = 0; j < 5; j++)
        EXPECT_NEAR(outcome.out[(i * 2 + h) * 5 + j], want.probabilities[j], 1e-6);
      EXPECT_NEAR(outcome.lse[h * 2 + i], want.lse, 1e-6);
    }
}

TEST(Reference, scale_defaults_to_the_root_of_the_key_dim) {
  Problem problem{.spec = make_spec(DType::kFloat32, 1, 1, 16, 3), .requests = {{1, 3}}};
  problem.q = problem.k = [](int64_t, int64_t token, int64_t, int64_t) { return float(token % 3); };
  problem.q = constant(1);
  set_one_hot_values(problem);
  const Outcome outcome = reference(problem);
  const Row want = softmax({0, 4, 8});  // 16 * j / sqrt(16)
  for (int j = 0; j < 3; j++) EXPECT_NEAR(outcome.out[j], want.probabilities[j], 1e-6);
}

// Public report A04: no finite number stands in for minus infinity.
TEST(Reference, scores_far_below_any_sentinel_still_count) {
  for (float base : {-4e4f, -5e4f, -6e4f, -1e5f, -1e6f}) {
    Problem problem{.spec = fp32_spec(1, 1, 4), .requests = {{1, 3}}};
    set_scores(problem, {base, base - 8, base - 16});
    set_one_hot_values(problem);
    const Outcome outcome = reference(problem);
    const Row want = softmax({0, -8, -16});
    for (int j = 0; j < 3; j++) EXPECT_NEAR(outcome.out[j], want.probabilities[j], 1e-6);
    EXPECT_FLOAT_EQ(outcome.lse[0], float(base + want.lse));
  }
}

// --- Oracle 3: with V = 1, out is 1, or 0 where no key is seen (public report A03). ---

TEST(Reference, rows_without_keys_are_zero_and_minus_infinity) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 4, 1, 8), .requests = {{5, 3}, {2, 0}}};
  problem.k = constant(0);
  problem.v = constant(1);
  const Outcome outcome = reference(problem);
  const double want_lse[] = {-kInf, -kInf, 0, std::log(2), std::log(3), -kInf, -kInf};
  for (int64_t h = 0; h < 4; h++)
    for (int64_t t = 0; t < 7; t++) {
      EXPECT_FLOAT_EQ(outcome.lse[h * 7 + t], float(want_lse[t]));
      for (int64_t d = 0; d < 8; d++)
        EXPECT_EQ(outcome.out[(t * 4 + h) * 8 + d], want_lse[t] == -kInf ? 0 : 1);
    }
}

// --- Oracle 4: a sink only adds to the denominator (public report E05). ---

TEST(Reference, a_sink_joins_the_denominator_once) {
  Problem problem{.spec = fp32_spec(2, 1, 8), .requests = {{1, 7}, {1, 0}}};
  problem.k = constant(0);
  problem.v = constant(1);
  problem.spec.sinks = true;
  problem.sinks = {0.0f, 800.0f};  // exp(800) has no double
  const Outcome outcome = reference(problem);
  EXPECT_FLOAT_EQ(outcome.out[0], 7.0f / 8);
  EXPECT_FLOAT_EQ(outcome.out[8], 0);
  EXPECT_FLOAT_EQ(outcome.lse[0], std::log(8.0f));
  EXPECT_FLOAT_EQ(outcome.lse[2], 800.0f);
  EXPECT_EQ(outcome.out[16], 0) << "no key: out 0, lse = sink";
  EXPECT_EQ(outcome.lse[1], 0);
  EXPECT_EQ(outcome.lse[3], 800.0f);
}

// --- Oracle 5: a cut of the keys, merged by log-sum-exp, is one pass. ---

TEST(Reference, parts_of_the_keys_merge_to_one_pass) {
  Problem whole{.spec = fp32_spec(4, 2, 24), .requests = {{3, 29, 5}}};
  whole.spec.causal = false;
  const Outcome one = reference(whole);
  for (int32_t cut : {0, 1, 16, 28, 29}) {
    Problem head = whole, tail = whole;
    head.requests[0].kv_len = cut;
    tail.requests[0].kv_len = 29 - cut;
    tail.requests[0].first_key = cut;
    const Outcome a = reference(head), b = reference(tail);
    for (int64_t t = 0; t < 3; t++)
      for (int64_t h = 0; h < 4; h++) {
        const double lse_a = a.lse[h * 3 + t], lse_b = b.lse[h * 3 + t];
        const double lse = std::log(std::exp(lse_a) + std::exp(lse_b));
        EXPECT_NEAR(one.lse[h * 3 + t], lse, 1e-5);
        for (int64_t d = 0; d < 24; d++) {
          const int64_t at = (t * 4 + h) * 24 + d;
          EXPECT_NEAR(one.out[at],
                      a.out[at] * std::exp(lse_a - lse) + b.out[at] * std::exp(lse_b - lse), 1e-5);
        }
      }
  }
}

// --- Oracle 6: what no row sees is not read. support/tensors.hpp poisons all memory around the
// visible keys; a key that a mask hides is poisoned here. ---

TEST(Reference, keys_hidden_by_the_mask_may_hold_nan) {
  Problem problem{.spec = fp32_spec(2, 2, 8), .requests = {{2, 9}, {3, 6}}};
  problem.spec.causal = false;
  problem.spec.custom_mask = true;
  problem.mask = [](int64_t, int64_t, int64_t j) { return j % 3 != 1; };
  const Outcome clean = reference(problem);
  problem.k = problem.v = [](int64_t, int64_t token, int64_t, int64_t) {
    return token % 3 == 1 ? std::nanf("") : 1.0f;
  };
  const Outcome outcome = reference(problem);
  for (float value : outcome.out) EXPECT_EQ(value, 1.0f);
  for (float value : clean.out) EXPECT_FALSE(std::isnan(value));
}

TEST(Reference, masks_count_bits_across_requests) {  // 3 * 5 = 15 bits, then 2 * 7
  Problem problem{.spec = fp32_spec(1, 1, 4), .requests = {{3, 5}, {2, 7}}};
  problem.spec.causal = false;
  problem.spec.custom_mask = true;
  problem.q = constant(0);
  auto mask = [](int64_t id, int64_t i, int64_t j) { return (id * 5 + i * 3 + j * 7) % 4 < 2; };
  problem.mask = mask;
  const Outcome outcome = reference(problem);
  const int64_t lengths[][2] = {{3, 5}, {2, 7}};
  for (int64_t b = 0, token = 0; b < 2; b++)
    for (int64_t i = 0; i < lengths[b][0]; i++, token++) {
      double count = 0;
      for (int64_t j = 0; j < lengths[b][1]; j++) count += mask(b, i, j);
      EXPECT_FLOAT_EQ(outcome.lse[token], float(std::log(count)));
    }
}

TEST(Reference, a_visible_nan_reaches_the_output) {
  Problem problem{.spec = fp32_spec(1, 1, 4), .requests = {{1, 1}}};
  problem.k = constant(std::nanf(""));
  const Outcome outcome = reference(problem);
  EXPECT_TRUE(std::isnan(outcome.out[0]));
  EXPECT_TRUE(std::isnan(outcome.lse[0]));
}

// --- Oracle 7: every option that is accepted changes the result. ---

TEST(Reference, every_option_changes_the_result) {
  Problem plain{.spec = fp32_spec(4, 2, 16), .requests = {{3, 20}}};
  const Outcome base = reference(plain);
  const std::pair<const char*, void (*)(Problem&)> options[] = {
      {"scale", [](Problem& p) { p.spec.scale = 0.5f; }},
      {"softcap", [](Problem& p) { p.spec.softcap = 2; }},
      {"window",
       [](Problem& p) {
         p.spec.window = {3, 0};
       }},
      {"causal", [](Problem& p) { p.spec.causal = false; }},
      {"alibi", [](Problem& p) { p.spec.alibi = true; }},
      {"sinks", [](Problem& p) { p.spec.sinks = true; }},
      {"custom_mask", [](Problem& p) { p.spec.custom_mask = true; }},
      {"k_scale",
       [](Problem& p) {
         p.spec.kv_scales = KvScales::kPerTensor, p.k_scale = {2}, p.v_scale = {1};
       }},
      {"v_scale",
       [](Problem& p) {
         p.spec.kv_scales = KvScales::kPerHead, p.k_scale = {1, 1}, p.v_scale = {1, 2};
       }},
  };
  for (const auto& [name, set] : options) {
    Problem changed = plain;
    set(changed);
    EXPECT_NE(reference(changed).out, base.out) << name;
  }
}

// k_scale multiplies scores as the scale does, v_scale the output: exactly, for powers of two.
TEST(Reference, kv_scales_multiply_scores_and_output) {
  for (int32_t page_size : {0, 4}) {
    Problem plain{.spec = fp32_spec(4, 2, 16), .requests = {{3, 20}}};
    plain.spec.page_size = page_size;
    plain.spec.softcap = 3;  // scales come before it
    Problem by_scale = plain, by_k_scale = plain;
    by_scale.spec.scale = 4 * plain.spec.resolved_scale();
    by_k_scale.spec.kv_scales = KvScales::kPerTensor;
    by_k_scale.k_scale = {4};
    by_k_scale.v_scale = {0.5f};
    const Outcome a = reference(by_scale), b = reference(by_k_scale);
    EXPECT_EQ(a.lse, b.lse);
    for (size_t i = 0; i < a.out.size(); i++) EXPECT_EQ(a.out[i] * 0.5f, b.out[i]);

    Problem per_head = by_k_scale;
    per_head.spec.kv_scales = KvScales::kPerHead;
    per_head.k_scale = {4, 1};
    per_head.v_scale = {0.5f, 1};
    const Outcome c = reference(per_head), d = reference(plain);
    for (int64_t t = 0; t < 3; t++)
      for (int64_t h = 0; h < 4; h++)  // query heads 0 and 1 are those of KV head 0
        for (int64_t at = (t * 4 + h) * 16; at < (t * 4 + h + 1) * 16; at++)
          EXPECT_EQ(c.out[at], h < 2 ? b.out[at] : d.out[at]);
  }
}

// --- Oracle 8: rows do not depend on other requests, nor on threads. ---

TEST(Reference, requests_do_not_depend_on_each_other) {
  Problem alone{.spec = make_spec(DType::kFloat16, 4, 2, 40), .requests = {{3, 21, 77}}};
  Problem crowd = alone;
  crowd.requests = {{1, 9, 1}, {0, 6, 2}, {3, 21, 77}, {2, 0, 3}, {6, 4, 4}};
  const Outcome a = reference(alone);
  for (int32_t num_threads : {1, 2, 3}) {
    const Outcome b = reference(crowd, num_threads);
    for (int64_t t = 0; t < 3; t++)
      for (int64_t h = 0; h < 4; h++) {
        EXPECT_EQ(a.lse[h * 3 + t], b.lse[h * 12 + t + 1]);
        for (int64_t d = 0; d < 40; d++)
          EXPECT_EQ(a.out[(t * 4 + h) * 40 + d], b.out[((t + 1) * 4 + h) * 40 + d]);
      }
  }
}

// --- Storage ---

TEST(Reference, every_layout_and_ragged_keys_give_the_same_bits) {
  Problem problem{.spec = fp32_spec(6, 2, 20), .requests = {{2, 13, 1}, {1, 33, 2}}};
  problem.spec.page_size = 0;
  const Outcome ragged = reference(problem);
  for (int32_t page_size : {1, 5, 16})
    for (KvShape shape : {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked})
      for (KvLayout order : {KvLayout::kNHD, KvLayout::kHND})
        for (int32_t layers : {0, 3})
          for (bool write_kv : {false, true}) {
            problem.spec.page_size = page_size;
            problem.layout = {.shape = shape,
                              .order = order,
                              .num_layers = layers,
                              .layer = layers ? 1 : 0,
                              .write_kv = write_kv};
            const Outcome paged = reference(problem);
            EXPECT_EQ(paged.out, ragged.out) << problem.describe();
            EXPECT_EQ(paged.lse, ragged.lse) << problem.describe();
          }
}

// Public report C01: page 65536 of this pool starts at byte 2^32.
TEST(Reference, reads_pages_past_four_gibibytes) {
  AttentionSpec spec = make_spec(DType::kBFloat16, 8, 8, 128);
  const KvCacheGeometry geometry = KvCacheGeometry::of(spec, 65538);
  void* pool = mmap(nullptr, static_cast<size_t>(geometry.total_bytes()), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pool, MAP_FAILED) << "no 4 GiB of address space";
  const KvCacheView cache = geometry.view(pool);
  Context context({.num_threads = 1});
  const Attention attention(context, spec, {.backend = "reference"});

  const std::vector<uint16_t> zeros(8 * 128, 0), ones(8 * 128, 0x3f80);
  const std::vector<int64_t> slots = {65536 * 16};
  attention.write_kv({.k = TensorView::contiguous(zeros.data(), spec.dtype, {1, 8, 128}),
                      .v = TensorView::contiguous(ones.data(), spec.dtype, {1, 8, 128}),
                      .slot_mapping = TensorView::contiguous(slots.data(), DType::kInt64, {1}),
                      .cache = cache});
  const std::vector<int32_t> query_start = {0, 1}, kv_len = {1}, table = {65536};
  const Plan plan =
      attention.plan({.query_start = query_start,
                      .kv_len = kv_len,
                      .page_table = TensorView::contiguous(table.data(), DType::kInt32, {1, 1}),
                      .num_pages = 65538});
  std::vector<uint16_t> out(8 * 128, 0xffff);
  std::vector<float> lse(8, -1);
  attention.run(plan, {.q = TensorView::contiguous(zeros.data(), spec.dtype, {1, 8, 128}),
                       .k = cache.k,
                       .v = cache.v,
                       .out = TensorView::contiguous(out.data(), spec.dtype, {1, 8, 128}),
                       .lse = TensorView::contiguous(lse.data(), DType::kFloat32, {8, 1})});
  EXPECT_EQ(out, ones);
  EXPECT_EQ(lse, std::vector<float>(8, 0));
  munmap(pool, static_cast<size_t>(geometry.total_bytes()));
}

TEST(Reference, an_error_leaves_outputs_and_cache_untouched) {
  AttentionSpec spec = fp32_spec(1, 1, 8);
  const KvCacheGeometry geometry = KvCacheGeometry::of(spec, 2);
  std::vector<float> pool(geometry.total_bytes() / sizeof(float), 7), rows(3 * 8, 1);
  const KvCacheView cache = geometry.view(pool.data());
  Context context({.num_threads = 1});
  const Attention attention(context, spec, {.backend = "reference"});
  const TensorView three_rows = TensorView::contiguous(rows.data(), DType::kFloat32, {3, 1, 8});
  const std::vector<int64_t> slots = {0, 1, 32};  // the last one is past the pool
  EXPECT_THROW(
      attention.write_kv({.k = three_rows,
                          .v = three_rows,
                          .slot_mapping = TensorView::contiguous(slots.data(), DType::kInt64, {3}),
                          .cache = cache}),
      Error);
  EXPECT_EQ(pool, std::vector<float>(pool.size(), 7));

  const std::vector<int32_t> query_start = {0, 3}, kv_len = {3}, table = {0};
  const Plan plan =
      attention.plan({.query_start = query_start,
                      .kv_len = kv_len,
                      .page_table = TensorView::contiguous(table.data(), DType::kInt32, {1, 1}),
                      .num_pages = 2});
  std::vector<float> out(3 * 8, -5), lse(3, -5), sink(1, 0);
  RunArgs args{.q = three_rows,
               .k = cache.k,
               .v = cache.v,
               .out = TensorView::contiguous(out.data(), DType::kFloat32, {3, 1, 8}),
               .lse = TensorView::contiguous(lse.data(), DType::kFloat32, {1, 3}),
               .sinks = TensorView::contiguous(sink.data(), DType::kFloat32, {1})};
  EXPECT_THROW(attention.run(plan, args), Error) << "a sink that the spec does not have";
  EXPECT_EQ(out, std::vector<float>(24, -5));
  EXPECT_EQ(lse, std::vector<float>(3, -5));
  args.sinks = {};
  attention.run(plan, args);
  EXPECT_EQ(out, std::vector<float>(24, 7));
}

}  // namespace
}  // namespace rapt::test
