// Public reports, section C: offsets past 32 bits, long contexts, the ends of tables.
#include <functional>
#include <vector>

#include "support/check.hpp"
#include "support/element.hpp"

namespace rapt::test {
namespace {

// P = 16, Hkv = 8, D = 128: a page of K and V is 32,768 elements, so page 65,536 starts at element
// 2^31. The host's pool is sparse memory: only the pages named are touched. So is that of emulated
// devices; a real GPU has all of it.
TEST(Limits, C01_page_ids_whose_offsets_pass_31_and_32_bits) {
  for (int64_t first_page : {65534, 65536, 131071})
    for (bool write_kv : {false, true})
      for (int32_t query_len : {1, 40}) {  // decode and prefill kernels
        Problem problem{.spec = make_spec(DType::kBFloat16, 8, 8, 128),
                        .requests = {{query_len, 40}}};
        problem.layout.first_page = first_page;
        problem.layout.unused_pages = 0;
        problem.layout.write_kv = write_kv;
        expect_oracle(problem);
      }
}

TEST(Limits, C01_layer_interleaved_pools_stride_past_32_bits) {
  Problem problem{.spec = make_spec(DType::kFloat16, 2, 1, 64), .requests = {{1, 40}, {30, 33}}};
  problem.layout.num_layers = 48;
  problem.layout.layer = 47;
  problem.layout.first_page = 44000;  // x 48 layers x 2,048 elements passes 2^32
  problem.layout.unused_pages = 0;
  expect_oracle(problem);
}

TEST(Limits, C01_the_largest_page_ids) {
  // On a real GPU 69 GB.
  Problem problem{.spec = make_spec(DType::kBFloat16, 2, 1, 8), .requests = {{1, 3}, {2, 2}}};
  problem.spec.page_size = 1;
  problem.layout.first_page = (int64_t{1} << 31) - 6;
  problem.layout.unused_pages = 0;  // the last id is 2^31 - 2
  expect_oracle(problem);
}

// Batches whose table names one page over and over: a context of any length over little memory.
struct LongContext {
  std::vector<int32_t> query_start, kv_len, table;
  int32_t page_size;
  int64_t num_pages = 1;
  LongContext(int32_t num_queries, int32_t num_keys, int32_t page)
      : query_start{0, num_queries},
        kv_len{num_keys},
        table((num_keys + page - 1) / page, 0),
        page_size(page) {}
  Batch batch() const {
    return {.query_start = query_start,
            .kv_len = kv_len,
            .page_table = TensorView::contiguous(table.data(), DType::kInt32,
                                                 {1, static_cast<int64_t>(table.size())}),
            .num_pages = num_pages};
  }
  Batch batch(DeviceMirror& mirror, const Backend& backend) const {
    Batch batch = this->batch();
    if (!backend.table_on_device.value_or(false)) return batch;
    mirror.put(table);
    batch.page_table = mirror.view(batch.page_table);
    return batch;
  }
};

TEST(Limits, C03_plans_of_contexts_whose_byte_counts_pass_32_bits) {
  for (auto [query_len, kv_len] : {std::pair{1, 1 << 22}, {1, 5'000'000}, {8192, 524'288}}) {
    const LongContext context(query_len, kv_len, 16);
    const AttentionSpec spec = make_spec(DType::kBFloat16, 1, 1, 128);
    for (const Backend& backend : backends_for(spec)) {
      SCOPED_TRACE(backend.describe());
      const Attention attention(context_of(backend), spec, {.backend = backend.name});
      const Plan plan = attention.plan(context.batch());
      EXPECT_EQ(plan.num_tokens(), query_len);
      EXPECT_LT(plan.workspace_bytes(), size_t{1} << 31) << plan.describe();
      EXPECT_EQ(plan.describe().find('-'), std::string::npos) << plan.describe();
      // As much as for a context that every count of whose bytes fits.
      const LongContext shorter(query_len, std::max(query_len, 1 << 20), 16);
      const size_t needed = attention.plan(shorter.batch()).workspace_bytes();
      EXPECT_GE(plan.workspace_bytes(), needed) << plan.describe();
      EXPECT_LE(plan.workspace_bytes(), 2 * needed) << plan.describe();
    }
  }
  const LongContext mask(8192, 524'288, 16);
  EXPECT_EQ(custom_mask_bytes(mask.batch()), int64_t{8192} * 524'288 / 8);
}

// Runs in a workspace of NaN, and waits.
void run_in_poison(const Attention& attention, const Plan& plan, RunArgs args,
                   DeviceMirror& mirror) {
  GuardedBuffer workspace(plan.workspace_bytes(), kWorkspaceAlignment);
  workspace.fill(0xff);
  mirror.put(workspace);
  args.workspace = {mirror.address(workspace.data()), workspace.size()};
  attention.run(plan, args);
  mirror.context().synchronize();
  mirror.check_bands();
}

// Scores are 0, so a row's lse is the logarithm of how many keys it saw.
void expect_keys_counted(const LongContext& context, const Window& window, double num_keys) {
  AttentionSpec spec = make_spec(DType::kBFloat16, 1, 1, 16);
  spec.page_size = 64;
  spec.window = window;
  const int64_t num_queries = context.query_start.back();
  const std::vector<uint16_t> ones(64 * 16, 0x3f80);
  const std::vector<uint16_t> zeros(static_cast<size_t>(num_queries) * 16, 0);
  std::vector<uint16_t> out(zeros.size());
  std::vector<float> lse(static_cast<size_t>(num_queries));
  for (const Backend& backend : backends_for(spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), spec, {.backend = backend.name});
    DeviceMirror mirror(context_of(backend));
    const Plan plan = attention.plan(context.batch(mirror, backend));
    std::fill(out.begin(), out.end(), uint16_t{0xffff});
    std::fill(lse.begin(), lse.end(), std::nanf(""));
    mirror.put(ones), mirror.put(zeros), mirror.put(out), mirror.put(lse);
    const TensorView pool =
        mirror.view(TensorView::contiguous(ones.data(), DType::kBFloat16, {1, 64, 1, 16}));
    const auto rows = [&](const auto& data) {
      return mirror.view(
          TensorView::contiguous(data.data(), DType::kBFloat16, {num_queries, 1, 16}));
    };
    run_in_poison(
        attention, plan,
        {.q = rows(zeros),
         .k = pool,
         .v = pool,
         .out = rows(out),
         .lse = mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {1, num_queries}))},
        mirror);
    mirror.fetch(out), mirror.fetch(lse);
    for (float value : lse) ASSERT_NEAR(value, std::log(num_keys), 1e-3);
    for (uint16_t element : out) ASSERT_EQ(element, 0x3f80);
  }
}

TEST(Limits, C03_contexts_of_millions_of_keys_count_them) {
  const int32_t many = sized(1 << 22, 1 << 17), odd = sized(5'000'000, 77'777);
  expect_keys_counted(LongContext(1, many, 64), {}, many);  // 15.249
  expect_keys_counted(LongContext(1, odd, 64), {}, odd);
}

TEST(Limits, C03_8192_queries_of_524288_keys_find_their_window) {
  const int32_t num_queries = sized(8192, 300);
  expect_keys_counted(LongContext(num_queries, 524'288, 64), sliding_window(100), 100);
}

// Row 0 of the first page scores `gap` and holds the value 0; all other keys of the context score 0
// and hold 0.3.
void expect_weighted_mean(DType dtype, const LongContext& context, float gap) {
  constexpr int32_t kDim = 16;
  const int32_t query_len = context.query_start.back(), page_size = context.page_size;
  AttentionSpec spec = make_spec(dtype, 1, 1, kDim);
  spec.page_size = page_size;
  spec.scale = 1;
  const size_t bytes = size_of(dtype);
  const auto tensor = [&](int64_t rows, const std::function<float(int64_t, int64_t)>& value_of) {
    std::vector<std::byte> data(static_cast<size_t>(rows) * kDim * bytes);
    for (int64_t i = 0; i < rows * kDim; i++)
      store(dtype, &data[i * bytes], value_of(i / kDim, i % kDim));
    return data;
  };
  const auto k = tensor(2 * page_size, [&](auto row, auto d) { return row + d == 0 ? gap : 0; });
  const auto v = tensor(2 * page_size, [](auto row, auto) { return row == 0 ? 0 : 0.3f; });
  const auto q = tensor(query_len, [](auto, auto) { return 1.0f; });
  auto out = tensor(query_len, [](auto, auto) { return -1.0f; });
  std::vector<float> lse(static_cast<size_t>(query_len));
  const double first = std::exp(double{load(dtype, k.data())});
  // A real GPU, which gets all keys, adds up a split's by chains of 16 and more at a time.
  const double most = on_cpu()        ? 1e-4
                      : on_emulator() ? std::max(1e-4, unit_roundoff(dtype))
                                      : 1e-3 + unit_roundoff(dtype);
  const double value = load(dtype, &v[kDim * bytes]);
  for (const Backend& backend : backends_for(spec)) {
    const Attention attention(context_of(backend), spec, {.backend = backend.name});
    DeviceMirror mirror(context_of(backend));
    const Plan plan = attention.plan(context.batch(mirror, backend));
    for (const auto* data : {&q, &k, &v}) mirror.put(*data);
    mirror.put(out), mirror.put(lse);
    const auto view = [&](auto& data, std::initializer_list<int64_t> shape) {
      return mirror.view(TensorView::contiguous(data.data(), dtype, shape));
    };
    run_in_poison(
        attention, plan,
        {.q = view(q, {query_len, 1, kDim}),
         .k = view(k, {2, page_size, 1, kDim}),
         .v = view(v, {2, page_size, 1, kDim}),
         .out = view(out, {query_len, 1, kDim}),
         .lse = mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {1, query_len}))},
        mirror);
    mirror.fetch(out), mirror.fetch(lse);
    for (int32_t i = 0; i < query_len; i++) {
      const double others = context.kv_len[0] - query_len + i, sum = first + others;
      ASSERT_NEAR(lse[i], std::log(sum), 1e-5) << backend.describe() << ", row " << i;
      for (int32_t d = 0; d < kDim; d++)
        ASSERT_NEAR(load(dtype, &out[(i * kDim + d) * bytes]), value * others / sum,
                    value * std::max(most, unit_roundoff(dtype)))
            << backend.describe() << ", row " << i;
    }
  }
}

// Chains of fp32 sums over all keys are off by 1 %, of fp32 and bf16 values.
TEST(Limits, the_values_of_a_million_keys_all_count) {
  for (const DType dtype : {finest_dtype(), DType::kBFloat16})
    for (const int32_t query_len : {1, 17}) {  // decode and prefill kernels
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", " << query_len << " queries");
      LongContext context(query_len, sized(1 << 20, 1 << 15), 64);
      context.num_pages = 2;
      std::fill(context.table.begin() + 1, context.table.end(), 1);
      expect_weighted_mean(dtype, context, 0.3f);
    }
}

// Odd keys have the value 1, even ones 1000; their scores are score and -score.
void expect_two_scores(Problem problem, float q, float k) {
  problem.spec.causal = false;
  problem.spec.needs_lse = true;
  problem.q = [=](auto, auto, auto, int64_t d) { return d == 0 ? q : 0; };
  problem.k = [=](auto, int64_t j, auto, int64_t d) { return d > 0 ? 0 : j % 2 ? k : -k; };
  problem.v = [](auto, int64_t j, auto, auto) { return j % 2 ? 1.0f : 1000.0f; };
  const AttentionSpec& spec = problem.spec;
  double score = double{*spec.scale} * round_to(spec.dtype, q) * round_to(spec.dtype, k);
  if (!problem.k_scale.empty()) score *= problem.k_scale[0];
  if (spec.softcap != 0) score = spec.softcap * std::tanh(score / spec.softcap);
  const double odd = 1 / (1 + std::exp(-2 * score)), mean = odd + 1000 * (1 - odd);
  const double lse = std::log(problem.requests[0].kv_len / 2 * 2 * std::cosh(score));
  on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
    for (const float x : outcome.out)
      ASSERT_NEAR(x, mean, mean * std::max(1e-5, 2 * unit_roundoff(spec.dtype)));
    for (const float x : outcome.lse)
      ASSERT_NEAR(x, lse, spec.dtype == DType::kFloat32 ? 1e-5 : 1e-3);
  });
}

// Scores are small, but products of q and k, or scale * k_scale * log2(e), are none of fp32's.
TEST(Limits, scales_at_the_ends_of_fp32) {
  struct Case {
    float scale, k_scale, q, k;
  };
  for (const Case& c : {Case{1e-38f, 0, 1e19f, 2.5e19f}, Case{1e-40f, 0, 1e19f, 1e20f},
                        Case{3e38f, 0, 1e-19f, 2.5e-20f}, Case{-3e38f, 0, 1e-19f, 2.5e-20f},
                        Case{1e30f, 1e30f, 1e-30f, 1e-30f}, Case{1e-30f, 1e-30f, 1e29f, 1e31f}}) {
    // GPUs have no scales of keys, and keep q . k and scale * log2(e) in fp32.
    const double most = std::numeric_limits<float>::max(), log2_e = 1.4426950408889634;
    if (!on_cpu() &&
        (c.k_scale != 0 || std::abs(c.scale) * log2_e > most || double{c.q} * c.k > most))
      continue;
    for (const DType dtype : {on_cpu() ? DType::kFloat32 : DType::kBFloat16, DType::kBFloat16})
      for (const int32_t query_len : {1, 20})  // decode and prefill kernels
        for (const float softcap : some_of<float>({0, 2})) {
          Problem problem{.spec = make_spec(dtype, 2, 1, 8), .requests = {{query_len, 300}}};
          problem.spec.scale = c.scale;
          problem.spec.softcap = softcap;
          if (c.k_scale != 0) {
            problem.spec.kv_scales = KvScales::kPerTensor;
            problem.k_scale = {c.k_scale};
            problem.v_scale = {1};
          }
          expect_two_scores(problem, c.q, c.k);
        }
  }
}

// Whatever the slope, a bias at the query's own position is 0.
TEST(Limits, the_largest_slopes_at_distance_0) {
  for (const DType dtype : dtypes())
    for (const int32_t query_len : {1, 40}) {
      Problem problem{.spec = make_spec(dtype, 2, 1, 8), .requests = {{query_len, 40}}};
      problem.spec.window = {0, 0};
      problem.spec.alibi = problem.spec.needs_lse = true;
      problem.alibi_slopes = {3e38f, -3e38f};
      problem.q = problem.k = constant(0.5f);
      problem.v = [](auto, int64_t j, auto, auto) { return static_cast<float>(j); };
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        for (size_t i = 0; i < outcome.out.size(); i++)
          ASSERT_EQ(outcome.out[i], 40 - query_len + static_cast<float>(i / 16));
        // The AMX kernel's 2^x is right to 9e-5.
        const double most = on_cpu() && dtype == DType::kBFloat16 ? 1e-4 : 1e-5;
        for (const float x : outcome.lse) ASSERT_NEAR(x, 2 / std::sqrt(8.0), most);
      });
    }
}

// The table ends at an unmapped page after exactly ceil(257 / 64) entries.
TEST(Limits, C04_nothing_is_read_past_the_last_entry_of_a_table) {
  for (DType dtype : dtypes())
    for (int32_t query_len : {1, 4, 130, 257}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{query_len, 257}}};
      problem.spec.page_size = 64;
      expect_oracle(problem);
      problem.requests = {{query_len, 257}, {1, 65}, {2, 64}, {3, 1}};  // rows that end early
      problem.layout.table_pad = 2;
      expect_oracle(problem);
    }
}

// The last keys of the longest context there may be: a rolled-over block number would read far
// away. All keys are one row, which a stride of 0 repeats.
TEST(Limits, the_longest_context_ends_where_its_last_keys_are) {
  constexpr int32_t kLongest = std::numeric_limits<int32_t>::max() - 0xffff;
  const DType dtype = finest_dtype();
  AttentionSpec spec = make_spec(dtype, 2, 1, 8);
  spec.page_size = 0;
  spec.window = sliding_window(100);
  for (const int32_t query_len : {1, 40})
    for (const Backend& backend : backends_for(spec)) {
      if (backend.name == "reference") continue;  // it looks at every key
      const std::vector<int32_t> query_start = {0, query_len}, kv_len = {kLongest},
                                 kv_start = {0, kLongest};
      const size_t bytes = size_of(dtype);
      GuardedBuffer q(query_len * 16 * bytes), k(8 * bytes), v(8 * bytes), out(q.size());
      for (size_t i = 0; i < q.size() / bytes; i++) store(dtype, q.data() + i * bytes, 0.5);
      for (size_t i = 0; i < 8; i++) {
        store(dtype, k.data() + i * bytes, 0.25);
        store(dtype, v.data() + i * bytes, static_cast<double>(i + 1));
      }
      out.fill(0xff);
      std::vector<float> lse(2 * query_len, std::nanf(""));
      DeviceMirror mirror(context_of(backend));
      for (const GuardedBuffer* buffer : {&q, &k, &v, &out}) mirror.put(*buffer);
      mirror.put(lse);
      const Attention attention(context_of(backend), spec, {.backend = backend.name});
      const Plan plan =
          attention.plan({.query_start = query_start, .kv_len = kv_len, .kv_start = kv_start});
      const auto keys = [&](const GuardedBuffer& row) {
        return mirror.view(TensorView::strided(row.data(), dtype, {kLongest, 1, 8}, {0, 8, 1}));
      };
      const auto rows = [&](const GuardedBuffer& data) {
        return mirror.view(TensorView::contiguous(data.data(), dtype, {query_len, 2, 8}));
      };
      run_in_poison(
          attention, plan,
          {.q = rows(q),
           .k = keys(k),
           .v = keys(v),
           .out = rows(out),
           .lse = mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {2, query_len}))},
          mirror);
      mirror.fetch(out), mirror.fetch(lse);
      for (size_t i = 0; i < out.size() / bytes; i++)
        ASSERT_NEAR(load(dtype, out.data() + i * bytes), static_cast<double>(i % 8 + 1), 1e-5)
            << backend.describe() << " at " << i;
      // 100 keys of score 8 * 0.5 * 0.25 / sqrt(8).
      for (float x : lse) ASSERT_NEAR(x, std::log(100.0) + 1 / std::sqrt(8.0), 1e-5);
    }
}

// A context of 131,072 tokens against the oracle: a decode, and the last tokens of a prompt in
// company.
TEST(Limits, C03_a_context_of_131072_tokens_agrees_with_the_oracle) {
  const int32_t kv_len = on_cpu() ? 4'000 : sized(131'072, 4'000);
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 1, 128), .requests = {{1, kv_len}}};
  problem.q_amplitude = 4;  // no mean of them all
  expect_oracle(problem);
  problem.requests = {{1, 300}, {sized(40, 5), kv_len}, {1, 1}};
  problem.seed = 2;
  expect_oracle(problem);
}

// Every key has a row of its own: 2^31 elements of keys and as many of values.
TEST(Limits, C03_a_context_of_millions_of_keys_over_memory_of_its_own) {
  const int32_t kv_len = on_cpu() ? 1 << 14 : sized(1 << 24, 1 << 14), page_size = 16, dim = 128;
  const AttentionSpec spec = make_spec(DType::kBFloat16, 1, 1, dim);
  LongContext context(1, kv_len, page_size);
  context.num_pages = static_cast<int64_t>(context.table.size());
  for (size_t i = 0; i < context.table.size(); i++)
    context.table[i] = static_cast<int32_t>(context.table.size() - 1 - i);  // from the end
  const size_t count = size_t(kv_len) * dim;
  // Values are 1 in the older half of the context, and 3 in the newer: their mean is 2.
  const std::vector<uint16_t> k(count, 0x3f80), q(dim, 0);
  std::vector<uint16_t> v(count, 0x4040), out(dim, 0xffff);
  std::fill(v.begin() + static_cast<ptrdiff_t>(count / 2), v.end(), uint16_t{0x3f80});
  std::vector<float> lse(1, std::nanf(""));
  for (const Backend& backend : backends_for(spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), spec, {.backend = backend.name});
    DeviceMirror mirror(context_of(backend));
    const Plan plan = attention.plan(context.batch(mirror, backend));
    mirror.put(k), mirror.put(v), mirror.put(q);
    mirror.put(out), mirror.put(lse);
    const auto pool = [&](const auto& data) {
      return mirror.view(TensorView::contiguous(data.data(), DType::kBFloat16,
                                                {context.num_pages, page_size, 1, dim}));
    };
    const auto row = [&](const auto& data) {
      return mirror.view(TensorView::contiguous(data.data(), DType::kBFloat16, {1, 1, dim}));
    };
    run_in_poison(attention, plan,
                  {.q = row(q),
                   .k = pool(k),
                   .v = pool(v),
                   .out = row(out),
                   .lse = mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {1, 1}))},
                  mirror);
    mirror.fetch(out), mirror.fetch(lse);
    EXPECT_NEAR(lse[0], std::log(double(kv_len)), 1e-4);
    for (const uint16_t element : out) ASSERT_EQ(element, 0x4000);
  }
}

}  // namespace
}  // namespace rapt::test
