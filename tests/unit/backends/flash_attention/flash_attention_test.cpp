// Generation 2 through the public API against the fp64 oracle: on an emulated GPU, or on the device
// that RAPT_TEST_DEVICE names (RAPT_TEST_DEVICE=cuda), where the problems are larger and more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "fuzz/random_problem.hpp"
#include "support/check.hpp"
#include "support/element.hpp"
#include "support/error_of.hpp"

namespace rapt::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string& device_name() {
  static const std::string name = test_device_or("emulated-sm80");
  return name;
}
bool emulated() {
  return device_name().starts_with("emulated");
}

const Backend& gpu() {
  static const Backend backend = [] {
    // Each test is a process, which compiles what none before it has.
    setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
    return Backend{.name = "flash_attention", .device = device_name()};
  }();
  return backend;
}

void expect_right(const Problem& problem) {
  SCOPED_TRACE(problem.describe());
  Tensors tensors(problem);
  const Outcome outcome = run(tensors, gpu());
  EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), outcome), "") << outcome.plan;
}

struct Case {
  const char* name;
  Problem problem;
};

// Requests of every kind: decoding, a chunk, a whole prompt, padding, no keys, rows without keys.
std::vector<RequestLengths> mixed() {
  return {{1, 40}, {9, 33}, {0, 0}, {50, 50}, {1, 1}, {3, 0}, {6, 2}, {1, 300}};
}

AttentionSpec spec_of(DType dtype, int32_t num_query_heads, int32_t num_kv_heads, int32_t qk,
                      int32_t vo, int32_t page_size) {
  AttentionSpec spec = make_spec(dtype, num_query_heads, num_kv_heads, qk, vo);
  spec.page_size = page_size;
  spec.needs_lse = true;
  return spec;
}

std::vector<float> sinks_of(int32_t num_heads) {
  std::vector<float> sinks;
  for (int32_t head = 0; head < num_heads; head++)
    sinks.push_back(head % 4 == 1   ? -std::numeric_limits<float>::infinity()
                    : head % 4 == 2 ? std::numeric_limits<float>::infinity()
                                    : 0.5f * static_cast<float>(head));
  return sinks;
}

std::vector<Case> all_cases() {
  constexpr DType kBf16 = DType::kBFloat16, kFp16 = DType::kFloat16;
  std::vector<Case> cases;
  const auto add = [&](const char* name, const AttentionSpec& spec) -> Problem& {
    cases.push_back({name, {.spec = spec, .requests = mixed(), .seed = cases.size()}});
    return cases.back().problem;
  };
  AttentionSpec plain = spec_of(kBf16, 4, 2, 64, 0, 16);
  add("plain", plain);
  add("written_by_write_kv", plain).layout.write_kv = true;
  {
    Problem& p = add("packed_and_padded", plain);
    p.layout = {.order = KvLayout::kHND,
                .manager_ratio = 3,
                .table_pad = 2,
                .write_kv = true,
                .packed_qkv = true,
                .q_head_pad = 8,
                .out_head_pad = 2,
                .padding_rows = 3};
  }
  {
    Problem& p = add("decoding_alone", plain);
    p.requests = {{1, 17}, {1, 2600}, {1, 0}, {1, 5}};
  }
  {
    AttentionSpec spec = plain;
    spec.batch_invariant = true;
    add("batch_invariant", spec);
  }
  {
    Problem& p = add("unequal_odd_heads_pages_of_1", spec_of(kFp16, 6, 2, 72, 40, 1));
    p.layout = {.shape = KvShape::kPacked, .write_kv = true};
  }
  {
    AttentionSpec spec = spec_of(kBf16, 2, 2, 128, 0, 0);
    spec.kind = AttentionKind::kEncoderOnly;
    add("encoder_without_cache", spec).layout.kv_gap = 3;
  }
  {
    AttentionSpec spec = spec_of(kBf16, 3, 3, 32, 0, 7);
    spec.window = {2200, 0};
    spec.sinks = true;
    Problem& p = add("window_sinks_layers", spec);
    p.layout = {.shape = KvShape::kKvPages, .num_layers = 2, .layer = 1};
    p.sinks = sinks_of(3);
    p.requests.push_back({2, 2500});
  }
  {
    AttentionSpec spec = spec_of(kFp16, 8, 1, 64, 0, 48);
    spec.softcap = 5;
    spec.alibi = true;
    Problem& p = add("softcap_alibi", spec);
    for (int head = 0; head < 8; head++) p.alibi_slopes.push_back(0.02f * (head + 1.0f));
  }
  {
    AttentionSpec spec = spec_of(kBf16, 4, 4, 24, 0, 16);
    spec.causal = false;
    spec.custom_mask = spec.sinks = true;
    spec.window = {40, 7};
    Problem& p = add("custom_mask_sinks", spec);
    p.sinks = sinks_of(4);
    p.mask = [](int64_t, int64_t i, int64_t j) { return (i * 7 + j * 3) % 5 < 2; };
  }
  {
    AttentionSpec spec = spec_of(kBf16, 2, 1, 256, 0, 32);
    spec.scale = -0.1f;
    Problem& p = add("head_dim_256_negative_scale", spec);
    p.requests = {{1, 60}, {40, 70}};
  }
  {
    AttentionSpec spec = spec_of(kFp16, 8, 4, 8, 0, 16);  // stories260K's heads
    spec.needs_lse = false;
    add("head_dim_8", spec);
  }
  if (!emulated())
    for (Case& c : cases)
      for (RequestLengths& request : c.problem.requests) {
        if (request.kv_len > 20) request.kv_len *= 10;
        if (request.query_len > 5) request.query_len *= 4;
        if (c.problem.spec.kind == AttentionKind::kEncoderOnly)
          request.kv_len = std::max(request.kv_len, request.query_len);
      }
  return cases;
}

class FlashAttention : public testing::TestWithParam<size_t> {};
constexpr size_t kNumCases = 12;
INSTANTIATE_TEST_SUITE_P(Cases, FlashAttention, testing::Range(size_t{0}, kNumCases),
                         [](const auto& given) {
                           return std::string(all_cases()[given.param].name);
                         });

TEST_P(FlashAttention, agrees_with_the_oracle) {
  const std::vector<Case> cases = all_cases();
  ASSERT_EQ(cases.size(), kNumCases);
  expect_right(cases[GetParam()].problem);
}

class RandomProblems : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomProblems, testing::Range(0, 4));

TEST_P(RandomProblems, agree_with_the_oracle) {
  const int count = emulated() ? 1 : 40;
  for (int i = 0; i < count && !HasFailure(); i++)
    expect_right(
        random_gpu_problem(static_cast<uint64_t>(GetParam() + 4 * i), context_of(gpu()).device()));
}

Problem plain_problem() {
  return all_cases()[0].problem;
}

TEST(FlashAttentionRuns, give_the_same_bits_again_and_alone) {
  Problem problem = plain_problem();
  problem.spec.batch_invariant = true;
  const Outcome first = run(problem, gpu()), again = run(problem, gpu());
  EXPECT_EQ(first.out, again.out);
  EXPECT_EQ(first.lse, again.lse);
  for (size_t b : {size_t{0}, size_t{3}, size_t{7}}) {
    Problem alone = problem;
    alone.requests = {problem.requests[b]};
    alone.requests[0].id = static_cast<int64_t>(b);
    EXPECT_EQ(rows_of(alone, run(alone, gpu()), 0), rows_of(problem, first, b)) << b;
  }
}

TEST(FlashAttentionRuns, two_plans_are_in_flight_and_one_is_made_anew) {
  Context& context = context_of(gpu());
  Problem one = plain_problem(), other = plain_problem();
  other.requests = {{5, 90}, {1, 2}};
  other.seed = 9;
  Tensors tensors(one), others(other);
  const Attention attention(context, one.spec, {.backend = gpu().name});
  DeviceMirror mirror(context), other_mirror(context);
  tensors.put(mirror), others.put(other_mirror);
  Plan plan = attention.plan(tensors.batch(mirror, true));
  const Plan beside = attention.plan(others.batch(other_mirror, false));
  attention.run(plan, tensors.args(plan, mirror));
  attention.run(beside, others.args(beside, other_mirror));
  context.synchronize();
  tensors.fetch(mirror), others.fetch(other_mirror);
  EXPECT_EQ(verdict(one, expect(one), tensors.collect()), "");
  EXPECT_EQ(verdict(other, expect(other), others.collect()), "");

  attention.replan(plan, others.batch(other_mirror, true));
  attention.run(plan, others.args(plan, other_mirror));
  context.synchronize();
  others.fetch(other_mirror);
  EXPECT_EQ(verdict(other, expect(other), others.collect()), "");
}

TEST(FlashAttentionRuns, batches_without_work_write_nothing) {
  Problem problem = plain_problem();
  problem.requests = {};
  expect_right(problem);
  problem.requests = {{0, 20}, {0, 0}};
  problem.layout.padding_rows = 2;
  expect_right(problem);
}

TEST(FlashAttentionRuns, refuse_rows_that_they_cannot_read_and_write_nothing) {
  Context& context = context_of(gpu());
  Problem problem = plain_problem();
  problem.requests = {{1, 2600}, {4, 7}};
  Tensors tensors(problem);
  const Attention attention(context, problem.spec, {.backend = gpu().name});
  DeviceMirror mirror(context);
  tensors.put(mirror);
  const Plan plan = attention.plan(tensors.batch(mirror, true));
  ASSERT_GT(plan.workspace_bytes(), 0u);  // keys are cut
  const RunArgs good = tensors.args(plan, mirror);
  const auto refused = [&](ErrorCode code, const auto& spoil) {
    RunArgs args = good;
    spoil(args);
    return error_of(code, [&] { attention.run(plan, args); });
  };
  EXPECT_THAT(refused(ErrorCode::kUnsupported,
                      [](RunArgs& args) {
                        args.q.stride[1] += 4;
                        args.q.stride[0] += 32;
                      }),
              AllOf(HasSubstr("q is "), HasSubstr("multiple of 16 bytes, these are at 8")));
  EXPECT_THAT(
      refused(ErrorCode::kUnsupported,
              [](RunArgs& args) { args.v.data = static_cast<std::byte*>(args.v.data) + 2; }),
      AllOf(HasSubstr("v is "), HasSubstr("these are at 2")));
  EXPECT_THAT(
      refused(ErrorCode::kUnsupported,
              [](RunArgs& args) { args.out.data = static_cast<std::byte*>(args.out.data) + 2; }),
      AllOf(HasSubstr("out is "), HasSubstr("multiple of 4 bytes")));
  EXPECT_THAT(refused(ErrorCode::kInvalidArgument, [](RunArgs& args) { args.k.device = Device{}; }),
              AllOf(HasSubstr("k is on cpu"), HasSubstr("this backend runs on cuda")));
  EXPECT_THAT(refused(ErrorCode::kInvalidArgument, [](RunArgs& args) { args.workspace = {}; }),
              HasSubstr("workspace has 0 bytes"));
  context.synchronize();
  tensors.fetch(mirror);
  for (const float value : tensors.collect().out)
    ASSERT_EQ(value, load(DType::kBFloat16, "\xa5\xa5"));  // as they were filled
  attention.run(plan, good);
  context.synchronize();
  tensors.fetch(mirror);
  EXPECT_EQ(verdict(problem, expect(problem), tensors.collect()), "");
}

TEST(FlashAttentionRuns, refuse_page_tables_of_other_devices) {
  Context& context = context_of(gpu());
  const Problem problem = plain_problem();
  Tensors tensors(problem);
  const Attention attention(context, problem.spec, {.backend = gpu().name});
  Batch batch = tensors.batch();
  batch.page_table.device = {DeviceKind::kCuda, 99};
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention.plan(batch); }),
              HasSubstr("page_table is on cuda:99"));
}

// A table in device memory whose ids may be spoilt, one at a time.
class DeviceTable {
 public:
  DeviceTable(Context& context, const TensorView& host)
      : shape_{host.shape[0], host.shape[1]},
        ids_(static_cast<size_t>(shape_[0] * shape_[1])),
        buffer_(context, ids_.size() * sizeof(int32_t)),
        device_(context.tensor_device()) {
    for (int64_t b = 0; b < shape_[0]; b++)
      std::copy_n(static_cast<const int32_t*>(host.data) + b * host.stride[0], shape_[1],
                  ids_.begin() + b * shape_[1]);
    with(0, 0, ids_[0]);
  }

  void with(int64_t request, int64_t entry, int32_t id) {
    std::vector<int32_t> ids = ids_;
    ids[static_cast<size_t>(request * shape_[1] + entry)] = id;
    buffer_.copy_from_host(ids.data(), ids.size() * sizeof(int32_t));
  }
  void as_it_was() { with(0, 0, ids_[0]); }
  TensorView view() const {
    TensorView view = TensorView::contiguous(buffer_.data(), DType::kInt32, {shape_[0], shape_[1]});
    view.device = device_;
    return view;
  }

 private:
  std::array<int64_t, 2> shape_;
  std::vector<int32_t> ids_;
  DeviceBuffer buffer_;
  Device device_;
};

TEST(FlashAttentionChecks, a_run_names_the_page_id_that_is_not_in_the_pool) {
  gpu();  // sets the kernels' cache
  Context context({.device = device_name(), .num_threads = 1, .check_device_indices = true});
  Problem problem = plain_problem();
  problem.requests = {{1, 40}, {0, 0}, {5, 33}, {1, 2600}};  // keys are cut
  problem.layout.table_pad = 1;
  Tensors tensors(problem);
  const Attention attention(context, problem.spec, {.backend = gpu().name});
  DeviceMirror mirror(context);
  tensors.put(mirror);
  Batch batch = tensors.batch(mirror, true);
  DeviceTable table(context, tensors.batch().page_table);
  batch.page_table = table.view();
  const auto num_pages = static_cast<int32_t>(batch.num_pages);
  const Plan plan = attention.plan(batch);
  const RunArgs args = tensors.args(plan, mirror);
  const int64_t last = (2600 - 1) / 16;
  for (const auto& [request, entry, id] :
       {std::tuple<int64_t, int64_t, int32_t>{0, 0, -1}, {2, 2, 1 << 30}, {3, last, num_pages}}) {
    table.with(request, entry, id);
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention.run(plan, args); }),
                AllOf(HasSubstr(concat("page_table[", request, ", ", entry, "] is ", id, ",")),
                      HasSubstr(concat("num_pages is ", num_pages, ":"))));
  }
  context.synchronize();
  tensors.fetch(mirror);
  for (const float value : tensors.collect().out)
    ASSERT_EQ(value, load(DType::kBFloat16, "\xa5\xa5"));  // as they were filled

  // Later runs work, and entries past the lengths are not looked at.
  for (const auto& [request, entry] : {std::pair<int64_t, int64_t>{0, 3}, {1, 0}, {3, last + 1}}) {
    table.with(request, entry, -1);
    const RunArgs anew = tensors.args(plan, mirror);
    attention.run(plan, anew);
    context.synchronize();
    tensors.fetch(mirror);
    EXPECT_EQ(verdict(problem, expect(problem), tensors.collect()), "") << request;
  }
}

TEST(FlashAttentionChecks, write_kv_names_the_slot_that_is_not_in_the_cache) {
  gpu();  // sets the kernels' cache
  setenv("RAPT_CHECK_DEVICE_INDICES", "1", 1);
  Context context({.device = device_name(), .num_threads = 1});
  unsetenv("RAPT_CHECK_DEVICE_INDICES");
  AttentionSpec spec = make_spec(DType::kBFloat16, 2, 2, 8);
  spec.page_size = 4;
  const Attention attention(context, spec, {.backend = gpu().name});
  constexpr int64_t kTokens = 1500, kPages = 400, kRow = 2 * 8;  // elements
  GuardedBuffer rows(2 * kTokens * kRow), cache(2 * kPages * 4 * kRow), slots(8 * kTokens);
  rows.fill(0x11), cache.fill(0xa5);
  for (int64_t i = 0; i < kTokens; i++) slots.as<int64_t>()[i] = i % 3 ? i : -i - 1;
  DeviceMirror mirror(context);
  for (const GuardedBuffer* buffer : {&rows, &cache}) mirror.put(*buffer);
  const TensorView k = TensorView::contiguous(rows.data(), DType::kBFloat16, {kTokens, 2, 8});
  const TensorView kv = TensorView::contiguous(cache.data(), DType::kBFloat16, {kPages, 4, 2, 8});
  const auto write = [&] {
    mirror.put(slots);
    attention.write_kv({.k = mirror.view(k),
                        .v = mirror.view(k),
                        .slot_mapping = mirror.view(
                            TensorView::contiguous(slots.data(), DType::kInt64, {kTokens})),
                        .cache = {mirror.view(kv), mirror.view(kv)}});
    context.synchronize();
    mirror.fetch(cache);
  };
  for (const auto& [at, slot] : {std::pair<int64_t, int64_t>{0, kPages * 4},
                                 {1024, int64_t{1} << 40},
                                 {kTokens - 1, kPages * 4 + 1}}) {
    const int64_t good = std::exchange(slots.as<int64_t>()[at], slot);
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, write),
                AllOf(HasSubstr(concat("slot_mapping[", at, "] is ", slot, ":")),
                      HasSubstr("slots 0 to 1599")));
    slots.as<int64_t>()[at] = good;
    mirror.fetch(cache);
    for (size_t i = 0; i < cache.size(); i++) ASSERT_EQ(cache.data()[i], std::byte{0xa5});
  }
  write();
  for (int64_t slot = 0; slot < kPages * 4; slot++)
    ASSERT_EQ(cache.data()[2 * slot * kRow],
              slot < kTokens && slot % 3 ? std::byte{0x11} : std::byte{0xa5});
}

// Slots below 0 are not written, and rows may lie at any multiple of 2 bytes.
TEST(FlashAttentionWriteKv, writes_rows_of_any_alignment) {
  Context& context = context_of(gpu());
  AttentionSpec spec = make_spec(DType::kBFloat16, 2, 2, 8);
  spec.page_size = 4;
  const Attention attention(context, spec, {.backend = gpu().name});
  constexpr int64_t kTokens = 3, kRow = 9;  // elements, of which 8 are a row
  GuardedBuffer rows(2 * (kTokens * 2 * kRow + 1)), cache(2 * (2 * 4 * 2 * kRow + 1)), slots(24);
  for (size_t i = 0; i < rows.size() / 2; i++)
    store(DType::kBFloat16, rows.data() + 2 * i, static_cast<double>(i));
  cache.fill(0xff);
  slots.as<int64_t>()[0] = 6, slots.as<int64_t>()[1] = -3, slots.as<int64_t>()[2] = 1;
  DeviceMirror mirror(context);
  for (const GuardedBuffer* buffer : {&rows, &cache, &slots}) mirror.put(*buffer);
  const TensorView k =
      TensorView::strided(rows.data() + 2, DType::kBFloat16, {kTokens, 2, 8}, {2 * kRow, kRow, 1});
  const TensorView cache_k = TensorView::strided(cache.data() + 2, DType::kBFloat16, {2, 4, 2, 8},
                                                 {8 * kRow, 2 * kRow, kRow, 1});
  // K and V are the same here, and written twice.
  attention.write_kv(
      {.k = mirror.view(k),
       .v = mirror.view(k),
       .slot_mapping = mirror.view(TensorView::contiguous(slots.data(), DType::kInt64, {kTokens})),
       .cache = {mirror.view(cache_k), mirror.view(cache_k)}});
  context.synchronize();
  mirror.fetch(cache);
  for (int64_t slot = 0; slot < 8; slot++)
    for (int64_t head = 0; head < 2; head++)
      for (int64_t d = 0; d < 8; d++) {
        const float got =
            load(DType::kBFloat16, cache.data() + 2 + 2 * ((slot * 2 + head) * kRow + d));
        const int64_t token = slot == 6 ? 0 : slot == 1 ? 2 : -1;
        if (token < 0)
          EXPECT_TRUE(std::isnan(got)) << slot;
        else
          EXPECT_EQ(got, round_to(DType::kBFloat16,
                                  static_cast<double>(1 + (token * 2 + head) * kRow + d)))
              << slot;
      }
}

TEST(FlashAttentionMemory, says_how_much_there_was_no_room_for) {
  EXPECT_THAT(error_of(ErrorCode::kOutOfMemory,
                       [] { const DeviceBuffer buffer(context_of(gpu()), size_t{1} << 50); }),
              HasSubstr("1125899906842624 bytes"));
  const DeviceBuffer buffer(context_of(gpu()), 100);
  EXPECT_EQ(buffer.host_accessible(), emulated());
}

TEST(FlashAttentionMerge, merges_what_lies_on_the_device) {
  Context& context = context_of(gpu());
  constexpr int64_t kTokens = 5, kHeads = 3, kDim = 40, kStates = 3;
  GuardedBuffer outs(kStates * kTokens * kHeads * kDim * 4), lses(kStates * kTokens * kHeads * 4);
  for (int64_t i = 0; i < kStates * kTokens * kHeads * kDim; i++)
    outs.as<float>()[i] = static_cast<float>(normal_of(1, i));
  for (int64_t i = 0; i < kStates * kTokens * kHeads; i++)
    lses.as<float>()[i] = i % 4 == 0 ? -std::numeric_limits<float>::infinity()
                                     : static_cast<float>(normal_of(2, i) * 3);
  GuardedBuffer out(kTokens * kHeads * kDim * 2), lse(kTokens * kHeads * 4);
  DeviceMirror mirror(context);
  for (const GuardedBuffer* buffer : {&outs, &lses, &out, &lse}) mirror.put(*buffer);
  std::vector<TensorView> host_outs, host_lses, device_outs, device_lses;
  for (int64_t s = 0; s < kStates; s++) {
    host_outs.push_back(TensorView::contiguous(outs.as<float>() + s * kTokens * kHeads * kDim,
                                               DType::kFloat32, {kTokens, kHeads, kDim}));
    host_lses.push_back(TensorView::contiguous(lses.as<float>() + s * kTokens * kHeads,
                                               DType::kFloat32, {kHeads, kTokens}));
    device_outs.push_back(mirror.view(host_outs.back()));
    device_lses.push_back(mirror.view(host_lses.back()));
  }
  const TensorView host_out =
      TensorView::contiguous(out.data(), DType::kBFloat16, {kTokens, kHeads, kDim});
  const TensorView host_lse =
      TensorView::contiguous(lse.data(), DType::kFloat32, {kHeads, kTokens});
  merge(context, {.outs = device_outs,
                  .lses = device_lses,
                  .out = mirror.view(host_out),
                  .lse = mirror.view(host_lse)});
  context.synchronize();
  mirror.fetch(out), mirror.fetch(lse);

  GuardedBuffer cpu_out(out.size()), cpu_lse(lse.size());
  TensorView expected_out = host_out, expected_lse = host_lse;
  expected_out.data = cpu_out.data(), expected_lse.data = cpu_lse.data();
  merge(context_of({.name = "cpu"}),
        {.outs = host_outs, .lses = host_lses, .out = expected_out, .lse = expected_lse});
  for (int64_t i = 0; i < kTokens * kHeads; i++)
    EXPECT_NEAR(lse.as<float>()[i], cpu_lse.as<float>()[i], 1e-5) << i;
  for (int64_t i = 0; i < kTokens * kHeads * kDim; i++)
    EXPECT_NEAR(load(DType::kBFloat16, out.data() + 2 * i),
                load(DType::kBFloat16, cpu_out.data() + 2 * i), 0.01)
        << i;

  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument,
               [&] { merge(context, {.outs = host_outs, .lses = host_lses, .out = host_out}); }),
      HasSubstr("is on cpu"));
  const std::vector<TensorView> many_outs(65, device_outs[0]), many_lses(65, device_lses[0]);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         merge(
                             context,
                             {.outs = many_outs, .lses = many_lses, .out = mirror.view(host_out)});
                       }),
              HasSubstr("65 states, at most 64"));
}

}  // namespace
}  // namespace rapt::test
