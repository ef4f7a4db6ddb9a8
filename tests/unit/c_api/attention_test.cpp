#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"
#include "support/oracle.hpp"
#include "support/tensors.hpp"

namespace rapt::test {
namespace {

struct Destroy {
  void operator()(rapt_context* handle) const { rapt_context_destroy(handle); }
  void operator()(rapt_attention* handle) const { rapt_attention_destroy(handle); }
  void operator()(rapt_plan* handle) const { rapt_plan_destroy(handle); }
};
template <typename Handle>
using Owned = std::unique_ptr<Handle, Destroy>;

Owned<rapt_context> make_context() {
  const rapt_context_options options{.struct_size = sizeof options, .num_threads = 2};
  rapt_context* made = nullptr;
  EXPECT_TRUE(succeeded(rapt_context_create(&options, &made)));
  return Owned<rapt_context>(made);
}

Owned<rapt_attention> make_attention(rapt_context* context, const AttentionSpec& spec,
                                     const char* backend) {
  const rapt_attention_spec c = c_spec(spec);
  const rapt_select_options options{.struct_size = sizeof options, .backend = backend};
  rapt_attention* made = nullptr;
  EXPECT_TRUE(succeeded(rapt_attention_create(context, &c, &options, &made)));
  return Owned<rapt_attention>(made);
}

Owned<rapt_plan> make_plan(const rapt_attention* attention, const Batch& batch) {
  const CBatch c(batch);
  rapt_plan* made = nullptr;
  EXPECT_TRUE(succeeded(rapt_plan_create(attention, &c.batch, &made)));
  return Owned<rapt_plan>(made);
}

// Decode, prefill, an empty request and a chunk, with most options at once.
Problem paged_problem() {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64),
                  .requests = {{1, 37}, {20, 20}, {0, 0}, {5, 50}}};
  problem.spec.page_size = 8;
  problem.spec.window = {30, -1};
  problem.spec.softcap = 20;
  problem.spec.scale = 0.2f;
  problem.spec.alibi = true;
  problem.spec.sinks = true;
  problem.spec.needs_lse = true;
  problem.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.5f, 0.25f, 0.125f, 0.0625f};
  problem.sinks = {0.5f, -1, 0, 1, 2, -2, 0.25f, 0.75f};
  return problem;
}

Problem ragged_problem() {
  Problem problem{.spec = make_spec(DType::kFloat32, 4, 4, 32), .requests = {{7, 7}, {3, 11}}};
  problem.spec.page_size = 0;
  problem.spec.causal = false;
  problem.spec.custom_mask = true;
  problem.mask = [](int64_t, int64_t i, int64_t j) { return (i + j) % 3 != 0; };
  return problem;
}

// The same run through both interfaces.
void expect_same_bits(const Problem& problem, const char* backend) {
  Tensors tensors(problem);
  Context context({.num_threads = 2});
  const Attention attention(context, problem.spec, {.backend = backend});
  const Plan plan = attention.plan(tensors.batch());
  attention.run(plan, tensors.args(plan));
  const Outcome expected = tensors.collect();
  ASSERT_EQ(expected.fault, "");

  const auto c_context = make_context();
  const auto c_attention = make_attention(c_context.get(), problem.spec, backend);
  const auto c_plan = make_plan(c_attention.get(), tensors.batch());
  size_t bytes = 1;
  int64_t num_tokens = 0;
  EXPECT_TRUE(succeeded(rapt_plan_workspace_bytes(c_plan.get(), &bytes)));
  EXPECT_TRUE(succeeded(rapt_plan_num_tokens(c_plan.get(), &num_tokens)));
  EXPECT_EQ(bytes, plan.workspace_bytes());
  EXPECT_EQ(num_tokens, problem.num_tokens());
  const CRunArgs c(tensors.args(plan));  // outputs poisoned anew
  EXPECT_TRUE(succeeded(rapt_run(c_plan.get(), &c.args)));
  const Outcome outcome = tensors.collect();
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.out, expected.out);
  EXPECT_EQ(outcome.lse, expected.lse);
}

TEST(CAttention, runs_a_paged_step_with_the_bits_of_the_cpp_interface) {
  for (const char* backend : {"cpu", "reference"}) expect_same_bits(paged_problem(), backend);
}

TEST(CAttention, runs_a_ragged_step_with_the_bits_of_the_cpp_interface) {
  for (const char* backend : {"cpu", "reference"}) expect_same_bits(ragged_problem(), backend);
}

class CAttentionRun : public testing::Test {
 protected:
  CAttentionRun()
      : problem(paged_problem()),
        tensors(problem),
        cpp_context({.num_threads = 2}),
        cpp_attention(cpp_context, problem.spec, {.backend = "reference"}),
        cpp_plan(cpp_attention.plan(tensors.batch())),
        context(make_context()),
        attention(make_attention(context.get(), problem.spec, "reference")),
        plan(make_plan(attention.get(), tensors.batch())) {
    cpp_attention.run(cpp_plan, tensors.args(cpp_plan));
    expected = tensors.collect();
  }

  Problem problem;
  Tensors tensors;
  Context cpp_context;
  Attention cpp_attention;
  Plan cpp_plan;
  Outcome expected;
  Owned<rapt_context> context;
  Owned<rapt_attention> attention;
  Owned<rapt_plan> plan;
};

TEST_F(CAttentionRun, honours_byte_offset_and_null_strides) {
  CRunArgs c(tensors.args(cpp_plan));
  c.q.tensor.data = static_cast<char*>(c.q.tensor.data) - 96;
  c.q.tensor.byte_offset = 96;
  c.out.tensor.strides = nullptr;  // the problem's out is row-major
  EXPECT_TRUE(succeeded(rapt_run(plan.get(), &c.args)));
  EXPECT_EQ(tensors.collect().out, expected.out);
}

TEST_F(CAttentionRun, outlives_the_handles_its_plan_was_made_from) {
  context.reset();
  attention.reset();
  const CRunArgs c(tensors.args(cpp_plan));
  EXPECT_TRUE(succeeded(rapt_run(plan.get(), &c.args)));
  EXPECT_EQ(tensors.collect().out, expected.out);
}

TEST_F(CAttentionRun, replans_in_place) {
  const std::vector<int32_t> query_start{0, 1}, kv_len{37};
  Batch smaller = tensors.batch();
  smaller.query_start = query_start;
  smaller.kv_len = kv_len;
  const CBatch one(smaller), all(tensors.batch());
  int64_t num_tokens = 0;
  EXPECT_TRUE(succeeded(rapt_replan(plan.get(), &one.batch)));
  EXPECT_TRUE(succeeded(rapt_plan_num_tokens(plan.get(), &num_tokens)));
  EXPECT_EQ(num_tokens, 1);
  EXPECT_TRUE(succeeded(rapt_replan(plan.get(), &all.batch)));
  const CRunArgs c(tensors.args(cpp_plan));
  EXPECT_TRUE(succeeded(rapt_run(plan.get(), &c.args)));
  EXPECT_EQ(tensors.collect().out, expected.out);
}

TEST_F(CAttentionRun, gives_its_texts_in_full_and_cut) {
  size_t length = 0;
  EXPECT_TRUE(succeeded(rapt_plan_describe(plan.get(), nullptr, 0, &length)));
  const std::string described = cpp_plan.describe();
  EXPECT_EQ(length, described.size());
  std::vector<char> text(length + 2, 'x');
  EXPECT_TRUE(succeeded(rapt_plan_describe(plan.get(), text.data(), length + 1, nullptr)));
  EXPECT_EQ(std::string(text.data()), described);
  EXPECT_EQ(text.back(), 'x');
  EXPECT_TRUE(succeeded(rapt_plan_describe(plan.get(), text.data(), 4, &length)));
  EXPECT_EQ(std::string(text.data()), described.substr(0, 3));
  EXPECT_EQ(length, described.size());

  const std::string explained = cpp_attention.selection().explain();
  text.assign(explained.size() + 1, 'x');
  EXPECT_TRUE(
      succeeded(rapt_attention_explain(attention.get(), text.data(), text.size(), &length)));
  EXPECT_EQ(std::string(text.data()), explained);
}

TEST_F(CAttentionRun, tells_its_selection) {
  rapt_selection selection{};
  selection.struct_size = sizeof selection;
  EXPECT_TRUE(succeeded(rapt_attention_selection(attention.get(), &selection)));
  EXPECT_STREQ(selection.backend, "reference");
  EXPECT_EQ(selection.page_size, cpp_attention.selection().page_size);
}

// Every bad argument: its status, its words, and not a byte of out or lse written.
TEST_F(CAttentionRun, refuses_bad_tensors_before_the_first_write) {
  struct Case {
    const char* words;
    void (*spoil)(CRunArgs&);
  };
  static int64_t negative[] = {-1, 8, 64};
  const Case cases[] = {
      {"q is missing", [](CRunArgs& c) { c.args.q = nullptr; }},
      {"q has ndim 0", [](CRunArgs& c) { c.q.tensor.ndim = 0; }},
      {"q has ndim 7", [](CRunArgs& c) { c.q.tensor.ndim = 7; }},
      {"must have 3 axes", [](CRunArgs& c) { c.q.tensor.ndim = 2; }},
      {"q has no shape", [](CRunArgs& c) { c.q.tensor.shape = nullptr; }},
      {"q has size -1 in axis 0", [](CRunArgs& c) { c.q.tensor.shape = negative; }},
      {"q has 2 lanes", [](CRunArgs& c) { c.q.tensor.dtype.lanes = 2; }},
      {"q has DLPack type code 5", [](CRunArgs& c) { c.q.tensor.dtype.code = kDLComplex; }},
      {"k has DLPack type code 8",
       [](CRunArgs& c) {
         c.k.tensor.dtype = {kDLFloat8_e4m3, 8, 1};
       }},
      {"out has DLPack type code 2 with 64 bits",
       [](CRunArgs& c) {
         c.out.tensor.dtype = {kDLFloat, 64, 1};
       }},
      {"v is float16",
       [](CRunArgs& c) {
         c.v.tensor.dtype = {kDLFloat, 16, 1};
       }},
      {"k is on cuda",
       [](CRunArgs& c) {
         c.k.tensor.device = {kDLCUDA, 0};
       }},
      {"out is on DLPack device type 10",
       [](CRunArgs& c) {
         c.out.tensor.device = {kDLROCM, 0};
       }},
      {"q has byte_offset", [](CRunArgs& c) { c.q.tensor.byte_offset = UINT64_MAX; }},
      {"without data", [](CRunArgs& c) { c.out.tensor.data = nullptr; }},
      {"last axis must be contiguous", [](CRunArgs& c) { c.q.strides[2] = 2; }},
      {"lse is missing", [](CRunArgs& c) { c.args.lse = nullptr; }},
      {"sinks is missing", [](CRunArgs& c) { c.args.sinks = nullptr; }},
      {"custom_mask is given", [](CRunArgs& c) { c.args.custom_mask = c.q.get(); }},
      {"args->struct_size is 0", [](CRunArgs& c) { c.args.struct_size = 0; }},
      {"args->struct_size is 13", [](CRunArgs& c) { c.args.struct_size = 13; }},
  };
  for (const Case& bad : cases) {
    CRunArgs c(tensors.args(cpp_plan));
    const std::vector<char> before(static_cast<char*>(c.out.tensor.data),
                                   static_cast<char*>(c.out.tensor.data) + 26 * 8 * 64 * 2);
    void* out = c.out.tensor.data;
    bad.spoil(c);
    EXPECT_TRUE(refused(rapt_run(plan.get(), &c.args), RAPT_INVALID_ARGUMENT, bad.words));
    EXPECT_EQ(std::memcmp(out, before.data(), before.size()), 0) << bad.words;
  }
  EXPECT_TRUE(refused(rapt_run(plan.get(), nullptr), RAPT_INVALID_ARGUMENT, "args is null"));
}

TEST_F(CAttentionRun, refuses_bad_batches) {
  const Batch batch = tensors.batch();
  rapt_plan* untouched = plan.get();
  auto refuses = [&](const char* words, auto spoil) {
    CBatch c(batch);
    spoil(c);
    rapt_plan* made = untouched;
    EXPECT_TRUE(
        refused(rapt_plan_create(attention.get(), &c.batch, &made), RAPT_INVALID_ARGUMENT, words));
    EXPECT_EQ(made, untouched);
  };
  refuses("num_requests is -1", [](CBatch& c) { c.batch.num_requests = -1; });
  refuses("query_start is null", [](CBatch& c) { c.batch.query_start = nullptr; });
  refuses("kv_len is null", [](CBatch& c) { c.batch.kv_len = nullptr; });
  refuses("page_table", [](CBatch& c) { c.batch.page_table = nullptr; });
  refuses("page_table", [](CBatch& c) { c.page_table.tensor.dtype = {kDLInt, 64, 1}; });
  refuses("page_table has DLPack type code 1 with 32 bits", [](CBatch& c) {
    c.page_table.tensor.dtype = {kDLUInt, 32, 1};
  });
  refuses("page_table is on cuda:0", [](CBatch& c) { c.page_table.tensor.device = {kDLCUDA, 0}; });
  refuses("kv_start", [](CBatch& c) { c.batch.kv_start = c.batch.query_start; });
  refuses("batch->struct_size is 4", [](CBatch& c) { c.batch.struct_size = 4; });
}

TEST(CAttention, writes_the_cache_as_the_cpp_interface_does) {
  const AttentionSpec spec = make_spec(DType::kFloat16, 4, 2, 16);
  const KvCacheGeometry geometry = KvCacheGeometry::of(spec, 3);
  std::vector<uint16_t> k(5 * 2 * 16), v(5 * 2 * 16);
  for (size_t i = 0; i < k.size(); i++) {
    k[i] = static_cast<uint16_t>(0x3c00 + i);
    v[i] = static_cast<uint16_t>(0x4000 + i);
  }
  const std::vector<int64_t> slots{40, -1, 7, 0, 16};
  const TensorView k_view = TensorView::contiguous(k.data(), DType::kFloat16, {5, 2, 16});
  const TensorView v_view = TensorView::contiguous(v.data(), DType::kFloat16, {5, 2, 16});
  const TensorView slot_view = TensorView::contiguous(slots.data(), DType::kInt64, {5});
  std::vector<uint8_t> expected(geometry.total_bytes(), 0xa5), pool = expected;

  Context context;
  Attention(context, spec)
      .write_kv({.k = k_view,
                 .v = v_view,
                 .slot_mapping = slot_view,
                 .cache = geometry.view(expected.data())});

  const auto c_context = make_context();
  const auto attention = make_attention(c_context.get(), spec, "auto");
  CTensor c_k(k_view), c_v(v_view), c_slots(slot_view);
  const KvCacheView cache = geometry.view(pool.data());
  CTensor cache_k(cache.k), cache_v(cache.v);
  rapt_write_kv_args args{.struct_size = sizeof args,
                          .k = c_k.get(),
                          .v = c_v.get(),
                          .slot_mapping = c_slots.get(),
                          .cache_k = cache_k.get(),
                          .cache_v = cache_v.get()};
  const std::vector<uint8_t> untouched = pool;
  args.slot_mapping = nullptr;
  EXPECT_TRUE(refused(rapt_write_kv(attention.get(), &args), RAPT_INVALID_ARGUMENT,
                      "slot_mapping is missing"));
  args.slot_mapping = c_slots.get();
  c_v.tensor.dtype = {kDLBfloat, 16, 1};
  EXPECT_TRUE(
      refused(rapt_write_kv(attention.get(), &args), RAPT_INVALID_ARGUMENT, "v is bfloat16"));
  EXPECT_EQ(pool, untouched);
  c_v.tensor.dtype = dl(DType::kFloat16);
  EXPECT_TRUE(succeeded(rapt_write_kv(attention.get(), &args)));
  EXPECT_EQ(pool, expected);
  EXPECT_NE(pool, untouched);
}

TEST(CAttention, rotates_as_the_cpp_interface_does) {
  const AttentionSpec spec = make_spec(DType::kFloat16, 4, 2, 16);
  const KvCacheGeometry geometry = KvCacheGeometry::of(spec, 3);
  std::vector<uint16_t> k(3 * 2 * 16), q(3 * 4 * 16), expected_q(q.size()), c_q(q.size());
  for (size_t i = 0; i < k.size(); i++) k[i] = static_cast<uint16_t>(0x3c00 + i);
  for (size_t i = 0; i < q.size(); i++) q[i] = static_cast<uint16_t>(0x3800 + i);
  std::vector<float> cos_sin(5 * 8);
  for (size_t i = 0; i < cos_sin.size(); i++) cos_sin[i] = static_cast<float>(i % 7) - 3;
  const std::vector<int64_t> slots{40, -1, 7};
  std::vector<int32_t> positions{4, 1, 2};
  const TensorView k_view = TensorView::contiguous(k.data(), DType::kFloat16, {3, 2, 16});
  const TensorView q_view = TensorView::contiguous(q.data(), DType::kFloat16, {3, 4, 16});
  const TensorView slot_view = TensorView::contiguous(slots.data(), DType::kInt64, {3});
  TensorView out_view = q_view;
  out_view.data = expected_q.data();
  std::vector<uint8_t> expected(geometry.total_bytes(), 0xa5), pool = expected;
  const RopeArgs rope{.positions = TensorView::contiguous(positions.data(), DType::kInt32, {3}),
                      .cos_sin = TensorView::contiguous(cos_sin.data(), DType::kFloat32, {5, 8}),
                      .style = RopeStyle::kInterleaved,
                      .q = q_view,
                      .q_out = out_view};
  Context context;
  Attention(context, spec)
      .write_kv({.k = k_view,
                 .v = k_view,
                 .slot_mapping = slot_view,
                 .cache = geometry.view(expected.data()),
                 .rope = rope});

  const auto c_context = make_context();
  const auto attention = make_attention(c_context.get(), spec, "auto");
  out_view.data = c_q.data();
  const KvCacheView cache = geometry.view(pool.data());
  CTensor c_k(k_view), c_slots(slot_view), cache_k(cache.k), cache_v(cache.v);
  CTensor c_positions(rope.positions), c_cos_sin(rope.cos_sin), q_in(q_view), q_out(out_view);
  rapt_rope_args c_rope{.struct_size = sizeof c_rope,
                        .positions = c_positions.get(),
                        .cos_sin = c_cos_sin.get(),
                        .q = q_in.get(),
                        .q_out = q_out.get(),
                        .style = RAPT_ROPE_INTERLEAVED};
  rapt_write_kv_args args{.struct_size = sizeof args,
                          .k = c_k.get(),
                          .v = c_k.get(),
                          .slot_mapping = c_slots.get(),
                          .cache_k = cache_k.get(),
                          .cache_v = cache_v.get(),
                          .rope = &c_rope};
  const std::vector<uint8_t> untouched = pool;
  const auto refuses = [&](const char* words) {
    EXPECT_TRUE(refused(rapt_write_kv(attention.get(), &args), RAPT_INVALID_ARGUMENT, words));
  };
  c_rope.style = 2;
  refuses("args->rope->style is 2");
  c_rope.style = RAPT_ROPE_INTERLEAVED, c_rope.reserved = 1;
  refuses("args->rope->reserved is 1");
  c_rope.reserved = 0, c_rope.struct_size = 4;
  refuses("args->rope->struct_size is 4");
  c_rope.struct_size = sizeof c_rope, c_rope.q_out = nullptr;
  refuses("rope.q_out is missing");
  c_rope.q_out = q_out.get(), positions[2] = 5;
  refuses("rope.positions[2] is 5");
  positions[2] = 2;
  EXPECT_EQ(pool, untouched);
  EXPECT_EQ(c_q, std::vector<uint16_t>(q.size()));
  EXPECT_TRUE(succeeded(rapt_write_kv(attention.get(), &args)));
  EXPECT_EQ(pool, expected);
  EXPECT_EQ(c_q, expected_q);
  EXPECT_NE(c_q, q);

  // A caller from before there was rope: keys as they are.
  args.struct_size = offsetof(rapt_write_kv_args, rope);
  EXPECT_TRUE(succeeded(rapt_write_kv(attention.get(), &args)));
  EXPECT_NE(pool, expected);
}

TEST(CAttention, merges_two_states_by_their_weights) {
  // Weights e^lse / sum: 1/4 and 3/4 in head 0; the second state empty in head 1.
  std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8}, out(4, -1.0f), lse(2, -1.0f);
  std::vector<float> lse_a{0, 0.5f}, lse_b{std::log(3.0f), -INFINITY};
  auto state = [](std::vector<float>& data) {
    return TensorView::contiguous(data.data(), DType::kFloat32, {1, 2, 2});
  };
  auto row = [](std::vector<float>& data) {
    return TensorView::contiguous(data.data(), DType::kFloat32, {2, 1});
  };
  CTensor c_a(state(a)), c_b(state(b)), c_out(state(out));
  CTensor c_lse_a(row(lse_a)), c_lse_b(row(lse_b)), c_lse(row(lse));
  const DLTensor* outs[] = {c_a.get(), c_b.get()};
  const DLTensor* lses[] = {c_lse_a.get(), c_lse_b.get()};
  const auto context = make_context();
  rapt_merge_args args{.struct_size = sizeof args,
                       .num_states = 2,
                       .outs = outs,
                       .lses = lses,
                       .out = c_out.get(),
                       .lse = c_lse.get()};
  outs[1] = nullptr;
  EXPECT_TRUE(refused(rapt_merge(context.get(), &args), RAPT_INVALID_ARGUMENT, "outs[i] is null"));
  EXPECT_EQ(out, std::vector<float>(4, -1.0f));
  outs[1] = c_b.get();
  ASSERT_TRUE(succeeded(rapt_merge(context.get(), &args)));
  EXPECT_NEAR(out[0], 0.25 * 1 + 0.75 * 5, 1e-5);
  EXPECT_NEAR(out[1], 0.25 * 2 + 0.75 * 6, 1e-5);
  EXPECT_NEAR(lse[0], std::log(4.0), 1e-6);
  EXPECT_EQ(out[2], 3);  // the empty state is the identity, bit for bit
  EXPECT_EQ(out[3], 4);
  EXPECT_EQ(lse[1], 0.5f);
}

TEST(CAttention, counts_the_bytes_of_a_mask) {
  const Problem problem = ragged_problem();
  Tensors tensors(problem);
  const CBatch c(tensors.batch());
  int64_t bytes = 0;
  EXPECT_TRUE(succeeded(rapt_custom_mask_bytes(&c.batch, &bytes)));
  EXPECT_EQ(bytes, (7 * 7 + 3 * 11 + 7) / 8);
}

}  // namespace
}  // namespace rapt::test
