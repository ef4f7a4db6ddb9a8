// What the tensors of a run, a cache write and a merge may be.
#include "problem/run_args.hpp"

#include <vector>

#include "unit/problem/refusal.hpp"

namespace rapt {
namespace {

using test::refusal;
using test::says;

// A run that is right in every respect: T = 5, 4 query heads over 2 KV heads, D = 16, Dvo = 8, a
// pool of 3 pages of 4. All tensors share one block of memory, which no validation reads.
struct Call {
  AttentionSpec spec{.num_query_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim_qk = 16,
                     .head_dim_vo = 8,
                     .dtype = DType::kFloat32,
                     .page_size = 4};
  BatchShape shape{.num_requests = 2, .num_tokens = 5, .num_pages = 3};
  alignas(64) float memory[512] = {};
  RunArgs args{.q = tensor({5, 4, 16}),
               .k = tensor({3, 4, 2, 16}),
               .v = tensor({3, 4, 2, 8}),
               .out = tensor({5, 4, 8})};

  TensorView tensor(std::initializer_list<int64_t> sizes, DType dtype = DType::kFloat32) {
    return TensorView::contiguous(memory, dtype, sizes);
  }
  std::string refused() {
    return refusal([&] { validate(spec, shape, args, Device{}); });
  }
};

std::string refused(const auto& change) {
  Call run;
  change(run);
  return run.refused();
}

TEST(RunArgs, plain_ones_are_accepted) {
  EXPECT_EQ(refused([](Call&) {}), "accepted");
}

TEST(RunArgs, missing_tensors_are_named) {
  EXPECT_THAT(refused([](Call& r) { r.args.q = {}; }), says("q is missing"));
  EXPECT_THAT(refused([](Call& r) { r.args.k = {}; }), says("k is missing"));
  EXPECT_THAT(refused([](Call& r) { r.args.v = {}; }), says("v is missing"));
  EXPECT_THAT(refused([](Call& r) { r.args.out = {}; }), says("out is missing"));
}

TEST(RunArgs, types_must_be_the_specs) {
  EXPECT_THAT(refused([](Call& r) { r.args.q.dtype = DType::kBFloat16; }),
              says("q is bfloat16", "must be float32"));
  EXPECT_THAT(refused([](Call& r) { r.args.k.dtype = DType::kFloat16; }),
              says("k is float16", "must be float32"));
  EXPECT_THAT(refused([](Call& r) { r.spec.kv_format = KvFormat::kFp8E4M3; }),
              says("k is float32", "must be float8_e4m3"));
  EXPECT_THAT(refused([](Call& r) { r.args.out.dtype = static_cast<DType>(99); }),
              says("out is unknown", "must be float32"));
}

TEST(RunArgs, shapes_must_be_the_specs) {
  EXPECT_THAT(refused([](Call& r) {
                r.args.q = r.tensor({5, 64});
              }),
              says("q is float32[5, 64]", "3 axes"));
  EXPECT_THAT(refused([](Call& r) { r.args.q.rank = 40; }), says("q has rank 40"));
  EXPECT_THAT(refused([](Call& r) {
                r.args.q = r.tensor({5, 3, 16});
              }),
              says("q is float32[5, 3, 16]", "axis 1 must be 4"));
  EXPECT_THAT(refused([](Call& r) {
                r.args.k = r.tensor({3, 16, 2, 16});
              }),
              says("k is float32[3, 16, 2, 16]", "axis 1 must be 4"));
  EXPECT_THAT(refused([](Call& r) {
                r.args.v = r.tensor({3, 4, 2, 16});
              }),
              says("v is float32[3, 4, 2, 16]", "axis 3 must be 8"));
  EXPECT_THAT(refused([](Call& r) { r.args.q.shape[0] = -5; }), says("size is negative"));
}

TEST(RunArgs, tensors_must_hold_the_plans_tokens_and_pages) {
  EXPECT_THAT(refused([](Call& r) { r.args.q.shape[0] = 4; }),
              says("q is float32[4, 4, 16]", "5 tokens"));
  EXPECT_THAT(refused([](Call& r) { r.args.out.shape[0] = 4; }),
              says("out is float32[4, 4, 8]", "5 tokens"));
  EXPECT_THAT(refused([](Call& r) { r.args.k.shape[0] = 2; }),
              says("k is float32[2, 4, 2, 16]", "3 pages"));
  EXPECT_EQ(refused([](Call& r) { r.shape.num_tokens = 0; }), "accepted") << "padding rows";
}

TEST(RunArgs, ragged_keys_must_hold_the_plans_rows) {
  auto ragged = [](const auto& change) {
    return refused([&](Call& r) {
      r.spec.page_size = 0;
      r.shape.num_pages = 0;
      r.shape.num_kv_rows = 7;
      r.args.k = r.tensor({7, 2, 16});
      r.args.v = r.tensor({7, 2, 8});
      change(r);
    });
  };
  EXPECT_EQ(ragged([](Call&) {}), "accepted");
  EXPECT_THAT(ragged([](Call& r) { r.args.v.shape[0] = 6; }),
              says("v is float32[6, 2, 8]", "kv_start ends at 7"));
}

TEST(RunArgs, strides_and_alignment_are_checked) {
  EXPECT_THAT(refused([](Call& r) { r.args.q.stride[2] = 2; }), says("q is", "last axis"));
  EXPECT_THAT(refused([](Call& r) { r.args.q.data = nullptr; }), says("q is", "without data"));
  EXPECT_THAT(refused([](Call& r) { r.args.q.data = reinterpret_cast<std::byte*>(r.memory) + 2; }),
              says("q is at", "aligned to its 4-byte"));
  EXPECT_THAT(refused([](Call& r) { r.args.q.stride[0] = int64_t{1} << 62; }),
              says("q: ", "does not fit in 64 bits"));
  EXPECT_THAT(refused([](Call& r) { r.args.k.stride[0] = int64_t{-1} << 62; }),
              says("does not fit in 64 bits"));
  EXPECT_EQ(refused([](Call& r) {
              r.args.q = TensorView::strided(r.memory, DType::kFloat32, {5, 4, 16}, {-64, 16, 1});
            }),
            "accepted");
}

TEST(RunArgs, strides_of_size_one_axes_are_ignored) {
  EXPECT_EQ(
      refused([](Call& r) {
        r.spec.num_query_heads = r.spec.num_kv_heads = r.spec.head_dim_vo = 1;
        r.shape.num_tokens = 1;
        const int64_t junk = INT64_MIN;
        r.args.q = TensorView::strided(r.memory, DType::kFloat32, {1, 1, 16}, {junk, junk, 1});
        r.args.k = r.tensor({3, 4, 1, 16});
        r.args.v = r.tensor({3, 4, 1, 1});
        r.args.v.stride[2] = r.args.v.stride[3] = junk;
        r.args.out = TensorView::strided(r.memory, DType::kFloat32, {1, 1, 1}, {junk, junk, junk});
      }),
      "accepted");
}

TEST(RunArgs, outputs_must_not_overlap_themselves) {
  EXPECT_THAT(refused([](Call& r) { r.args.out.stride[0] = 0; }), says("out is", "overlap"));
  EXPECT_THAT(refused([](Call& r) { r.args.out.stride[1] = 4; }),
              says("out is", "axis 1 steps over 4 elements where 8 lie"));
  EXPECT_THAT(refused([](Call& r) { r.args.out.stride[0] = 31; }), says("axis 0 steps over 31"));
  EXPECT_EQ(refused([](Call& r) {  // heads outside tokens, rows padded
              r.args.out = TensorView::strided(r.memory, DType::kFloat32, {5, 4, 8}, {9, 45, 1});
            }),
            "accepted");
  EXPECT_EQ(refused([](Call& r) { r.args.q.stride[0] = 0; }), "accepted") << "an input may repeat";
}

TEST(RunArgs, tensors_must_be_on_the_device_that_runs) {
  EXPECT_THAT(refused([](Call& r) { r.args.v.device.kind = DeviceKind::kCuda; }),
              says("v is on cuda:0", "runs on cpu: copy the tensor to the host"));
  Call call;
  for (TensorView* tensor : {&call.args.q, &call.args.k, &call.args.v, &call.args.out})
    tensor->device = {DeviceKind::kCuda, 1};
  validate(call.spec, call.shape, call.args, Device{DeviceKind::kCuda, 1});
  EXPECT_THAT(refusal([&] {
                validate(call.spec, call.shape, call.args, Device{DeviceKind::kCuda, 0});
              }),
              says("q is on cuda:1",
                   "runs on cuda:0: a tensor lies in memory of the context's "
                   "device, such as a device buffer's"));
}

// Public report E04: an option that is not in the spec is never dropped in silence, and one that is
// must be given.
TEST(RunArgs, options_are_given_if_and_only_if_the_spec_has_them) {
  struct Option {
    const char* name;
    void (*ask)(AttentionSpec&);
    TensorView RunArgs::*tensor;
    std::initializer_list<int64_t> shape;
    DType dtype = DType::kFloat32;
  };
  const Option options[] = {
      {"lse", [](AttentionSpec& s) { s.needs_lse = true; }, &RunArgs::lse, {4, 5}},
      {"alibi_slopes", [](AttentionSpec& s) { s.alibi = true; }, &RunArgs::alibi_slopes, {4}},
      {"sinks", [](AttentionSpec& s) { s.sinks = true; }, &RunArgs::sinks, {4}},
      {"custom_mask",
       [](AttentionSpec& s) { s.custom_mask = true; },
       &RunArgs::custom_mask,
       {0},
       DType::kUInt8},
  };
  for (const Option& option : options) {
    SCOPED_TRACE(option.name);
    EXPECT_THAT(refused([&](Call& r) { option.ask(r.spec); }),
                says(std::string(option.name) + " is missing"));
    EXPECT_THAT(
        refused([&](Call& r) { r.args.*option.tensor = r.tensor(option.shape, option.dtype); }),
        says(std::string(option.name) + " is given", "spec does not have"));
    EXPECT_EQ(refused([&](Call& r) {
                option.ask(r.spec);
                r.args.*option.tensor = r.tensor(option.shape, option.dtype);
              }),
              "accepted");
  }
}

TEST(RunArgs, option_tensors_have_one_entry_per_query_head) {
  EXPECT_THAT(refused([](Call& r) { r.spec.sinks = true, r.args.sinks = r.tensor({2}); }),
              says("sinks is float32[2]", "must be 4"));
  EXPECT_THAT(refused([](Call& r) { r.spec.alibi = true, r.args.alibi_slopes = r.tensor({5}); }),
              says("alibi_slopes is float32[5]", "must be 4"));
  EXPECT_THAT(refused([](Call& r) {
                r.spec.needs_lse = true, r.args.lse = r.tensor({5, 4});
              }),
              says("lse is float32[5, 4]", "axis 0 must be 4"));
  EXPECT_THAT(refused([](Call& r) {
                r.spec.needs_lse = true, r.args.lse = r.tensor({4, 4});
              }),
              says("lse is float32[4, 4]", "5 tokens"));
}

TEST(RunArgs, scales_follow_their_granularity) {
  auto scaled = [](KvScales scales, std::initializer_list<int64_t> k,
                   std::initializer_list<int64_t> v) {
    return refused([&](Call& r) {
      r.spec.kv_scales = scales;
      if (k.size()) r.args.k_scale = r.tensor(k);
      if (v.size()) r.args.v_scale = r.tensor(v);
    });
  };
  EXPECT_EQ(scaled(KvScales::kPerTensor, {1}, {1}), "accepted");
  EXPECT_EQ(scaled(KvScales::kPerHead, {2}, {2}), "accepted");
  EXPECT_EQ(scaled(KvScales::kPerTokenHead, {}, {}), "accepted") << "they live in the cache";
  EXPECT_THAT(scaled(KvScales::kPerTensor, {1}, {}), says("v_scale is missing"));
  EXPECT_THAT(scaled(KvScales::kPerHead, {4}, {2}), says("k_scale is float32[4]", "must be 2"));
  EXPECT_THAT(scaled(KvScales::kNone, {1}, {1}), says("k_scale is given"));
  EXPECT_THAT(scaled(KvScales::kPerTokenHead, {}, {2}), says("v_scale is given", "cache"));
}

TEST(RunArgs, a_mask_of_the_wrong_size_names_both_sizes) {  // public report G07
  auto masked = [](int64_t bytes) {
    return refused([&](Call& r) {
      r.spec.custom_mask = true;
      r.shape.custom_mask_bytes = 25;  // 10 x 20
      r.args.custom_mask = r.tensor({bytes}, DType::kUInt8);
    });
  };
  EXPECT_EQ(masked(25), "accepted");
  EXPECT_THAT(masked(19), says("custom_mask has 19 bytes", "takes 25"));  // 10 x 15
  EXPECT_THAT(masked(23), says("custom_mask has 23 bytes", "takes 25"));  // 9 x 20
  EXPECT_THAT(masked(26), says("custom_mask has 26 bytes", "takes 25"));
}

TEST(RunArgs, a_workspace_too_small_names_needed_and_given) {
  auto given = [](size_t offset, size_t bytes) {
    return refused([&](Call& r) {
      r.shape.workspace_bytes = 640;
      r.args.workspace = {reinterpret_cast<std::byte*>(r.memory) + offset, bytes};
    });
  };
  EXPECT_EQ(given(0, 640), "accepted");
  EXPECT_THAT(given(0, 639), says("workspace has 639 bytes", "needs 640"));
  EXPECT_THAT(given(4, 640), says("workspace is at", "aligned to 64"));
  EXPECT_THAT(refused([](Call& r) {
                r.shape.workspace_bytes = 640;
                r.args.workspace.bytes = 640;
              }),
              says("workspace has no data"));
}

// A cache write that is right: 3 slots into 3 pages of 4.
struct WriteCall {
  Call run;
  std::vector<int64_t> slots = {0, -1, 11};
  WriteKvArgs args{.k = run.tensor({3, 2, 16}),
                   .v = run.tensor({3, 2, 8}),
                   .slot_mapping = TensorView::contiguous(slots.data(), DType::kInt64, {3}),
                   .cache = {.k = run.args.k, .v = run.args.v}};
};

std::string write_refused(const auto& change) {
  WriteCall write;
  change(write);
  return refusal([&] { validate(write.run.spec, write.args, Device{}); });
}

TEST(WriteKvArgs, plain_ones_are_accepted) {
  EXPECT_EQ(write_refused([](WriteCall&) {}), "accepted");
  EXPECT_EQ(write_refused([](WriteCall& w) { w.args.slot_mapping.shape[0] = 0; }), "accepted");
}

TEST(WriteKvArgs, slots_are_int64_and_inside_the_cache) {
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.slot_mapping.dtype = DType::kInt32; }),
              says("slot_mapping is int32", "must be int64"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.slots[2] = 12; }),
              says("slot_mapping[2] is 12", "slots 0 to 11"));
  EXPECT_EQ(write_refused([](WriteCall& w) { w.slots[2] = INT64_MIN; }), "accepted");
}

TEST(WriteKvArgs, rows_and_cache_fit_the_spec_and_each_other) {
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.k.shape[0] = 2; }),
              says("k is float32[2, 2, 16]", "slot_mapping has 3"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.cache.v.shape[0] = 2; }),
              says("cache.v is float32[2, 4, 2, 8]", "axis 0 must be 3"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.cache.k.stride[0] = 0; }),
              says("cache.k is", "overlap"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.cache = {}; }), says("cache.k is missing"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.args.k_scale = w.run.tensor({1}); }),
              says("k_scale is given"));
  EXPECT_THAT(write_refused([](WriteCall& w) { w.run.spec.page_size = 0; }),
              says("write_kv", "page_size 0"));
}

// Two tokens of the three are written; positions are of int32, in a table of 6.
std::string rope_refused(const auto& change) {
  return write_refused([&](WriteCall& w) {
    static int32_t positions[3];
    w.slots[2] = -1;
    w.args.rope = RopeArgs{
        .positions = TensorView::contiguous(positions, DType::kInt32, {3}),
        .cos_sin = w.run.tensor({6, 8}),
        .q = w.run.tensor({3, 4, 16}),
        .q_out = w.run.tensor({3, 4, 16}),
    };
    positions[0] = 0, positions[1] = 5, positions[2] = 0;
    change(*w.args.rope, positions);
  });
}

TEST(WriteKvArgs, rope_has_a_position_for_every_row_that_is_rotated) {
  EXPECT_EQ(rope_refused([](RopeArgs&, int32_t*) {}), "accepted");
  EXPECT_THAT(rope_refused([](RopeArgs&, int32_t* p) { p[1] = 6; }),
              says("rope.positions[1] is 6", "rows 0 to 5"));
  EXPECT_THAT(rope_refused([](RopeArgs&, int32_t* p) { p[0] = -1; }),
              says("rope.positions[0] is -1"));
  EXPECT_THAT(rope_refused([](RopeArgs&, int32_t* p) { p[2] = 6; }),
              says("rope.positions[2] is 6"));
  EXPECT_EQ(rope_refused([](RopeArgs& rope, int32_t* p) {
              p[2] = 6;
              rope.q = rope.q_out = {};
            }),
            "accepted");
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.positions.shape[0] = 2; }),
              says("rope.positions is int32[2]", "slot_mapping has 3"));
  EXPECT_THAT(
      rope_refused([](RopeArgs& rope, int32_t*) { rope.positions.dtype = DType::kFloat32; }),
      says("rope.positions is float32", "int32 or int64"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.positions = {}; }),
              says("rope.positions is"));
}

TEST(WriteKvArgs, rope_fits_the_spec) {
  for (const int64_t rotary_dim : {0, 7, 18})
    EXPECT_THAT(rope_refused([&](RopeArgs& rope, int32_t*) { rope.cos_sin.shape[1] = rotary_dim; }),
                says("rope.cos_sin is", "even and from 2 to 16"))
        << rotary_dim;
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.cos_sin.dtype = DType::kFloat16; }),
              says("rope.cos_sin is float16"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q_out = {}; }),
              says("rope.q_out is missing"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q = {}; }),
              says("rope.q is missing"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q.shape[1] = 2; }),
              says("rope.q is", "axis 1 must be 4"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q_out.shape[0] = 2; }),
              says("rope.q_out is", "slot_mapping has 3"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q_out.stride[1] = 0; }),
              says("rope.q_out is", "overlap"));
  EXPECT_THAT(rope_refused([](RopeArgs& rope, int32_t*) { rope.q_out.stride[0] = 80; }),
              says("rope.q is", "at the same place", "lie apart"));
}

TEST(WriteKvArgs, a_cache_whose_k_and_v_interleave_is_accepted) {
  EXPECT_EQ(write_refused([](WriteCall& w) {
              const int64_t row = 16 + 8;  // packed: a token's K row, then its V row
              for (TensorView* half : {&w.args.cache.k, &w.args.cache.v})
                half->stride = {4 * 2 * row, 2 * row, row, 1};
            }),
            "accepted");
}

TEST(MergeArgs, states_must_match_the_output) {
  Call run;
  const TensorView out = run.tensor({3, 2, 8}), lse = run.tensor({2, 3});
  const TensorView outs[] = {out, out}, lses[] = {lse, lse};
  auto merge = [&](const auto& change) {
    MergeArgs args{.outs = outs, .lses = lses, .out = out, .lse = lse};
    change(args);
    return refusal([&] { validate(args, Device{}); });
  };
  EXPECT_EQ(merge([](MergeArgs&) {}), "accepted");
  EXPECT_EQ(merge([](MergeArgs& m) { m.lse = {}; }), "accepted");
  EXPECT_THAT(merge([](MergeArgs& m) { m.outs = {}; }), says("no states"));
  EXPECT_THAT(merge([](MergeArgs& m) { m.lses = m.lses.first(1); }), says("2 outs and 1 lses"));
  EXPECT_THAT(merge([](MergeArgs& m) { m.out.dtype = DType::kInt32; }), says("int32"));
  EXPECT_THAT(merge([](MergeArgs& m) { m.out.shape[0] = 4; }), says("axis 0 must be 4"));
  EXPECT_THAT(merge([&](MergeArgs& m) { m.lse = out; }), says("lse is", "2 axes"));
  EXPECT_THAT(merge([&](MergeArgs& m) {
                m.lse = run.tensor({3, 2});
              }),
              says("lse is float32[3, 2]", "axis 0 must be 2"));
}

}  // namespace
}  // namespace rapt
