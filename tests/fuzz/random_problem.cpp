#include "fuzz/random_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace rapt::test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  double uniform() { return uniform_of(seed_, 4711, ++draws_); }
  // In [low, high].
  int32_t in(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(uniform() * (static_cast<double>(high) - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  template <typename T>
  T of(std::initializer_list<T> options) {
    return options.begin()[in(0, static_cast<int32_t>(options.size()) - 1)];
  }

 private:
  uint64_t seed_, draws_ = 0;
};

void draw_heads(Dice& dice, AttentionSpec& spec) {
  spec.dtype = dice.of({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kBFloat16});
  const int32_t group = dice.of({1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 12, 16, 32, 71});
  spec.num_kv_heads = dice.in(1, group > 16 ? 2 : group > 8 ? 3 : 4);
  spec.num_query_heads = group * spec.num_kv_heads;
  spec.head_dim_qk =
      dice.chance(0.6) ? dice.of({64, 128, 80, 96, 192, 256, 512, 8, 40, 72}) : 8 * dice.in(1, 64);
  if (dice.chance(0.25)) spec.head_dim_vo = dice.chance(0.5) ? 128 : 8 * dice.in(1, 64);
  if (dice.chance(0.03)) spec.head_dim_qk = dice.in(1, 130);  // off the multiples of 8
}

void draw_options(Dice& dice, AttentionSpec& spec) {
  spec.page_size = dice.of({0, 1, 2, 3, 5, 7, 16, 16, 16, 32, 63, 64, 128, 256, 1000});
  if (spec.page_size == 0 && dice.chance(0.5))
    spec.kind = dice.of({AttentionKind::kEncoder, AttentionKind::kEncoderOnly});
  if (dice.chance(0.1)) spec.kind = AttentionKind::kEncoderDecoder;
  if (spec.kind == AttentionKind::kDecoder && dice.chance(0.3)) spec.causal = dice.chance(0.5);
  if (dice.chance(0.4)) {
    auto side = [&] { return dice.chance(0.2) ? -1 : dice.in(-12, 60); };
    spec.window = dice.chance(0.5) ? sliding_window(dice.in(1, 80)) : Window{side(), side()};
  }
  if (dice.chance(0.2))
    spec.scale = static_cast<float>(dice.of({0.01, 0.3, 1.0, -0.2, 0.0, 1e-38, -1e-44}));
  if (dice.chance(0.2))
    spec.softcap = static_cast<float>(dice.of({0.5, 5.0, 30.0, 50.0, 1e-20, 1e-3, 1e4, 1e20}));
  spec.alibi = dice.chance(0.15);
  spec.sinks = dice.chance(0.2);
  spec.custom_mask = dice.chance(0.15);
  if (dice.chance(0.15) && spec.is_paged())
    spec.kv_scales = dice.of({KvScales::kPerTensor, KvScales::kPerHead});
  spec.needs_lse = dice.chance(0.7);
  spec.batch_invariant = dice.chance(0.3);
}

void draw_layout(Dice& dice, Layout& layout) {
  layout.shape = dice.of({KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked});
  layout.order = dice.of({KvLayout::kNHD, KvLayout::kHND});
  if (dice.chance(0.2)) {
    layout.num_layers = dice.in(1, 3);
    layout.layer = dice.in(0, layout.num_layers - 1);
  }
  if (dice.chance(0.2)) layout.manager_ratio = dice.in(2, 5);
  layout.permuted_pages = dice.chance(0.9);
  layout.unused_pages = dice.in(0, 2);
  layout.table_pad = dice.chance(0.5) ? dice.in(1, 4) : 0;
  layout.write_kv = dice.chance(0.3);
  layout.kv_gap = dice.chance(0.3) ? dice.in(1, 5) : 0;
  layout.packed_qkv = dice.chance(0.3);
  if (dice.chance(0.2)) layout.q_head_pad = dice.of({1, 3, 8, 16});
  if (dice.chance(0.2)) layout.out_head_pad = dice.of({1, 3, 8, 16});
  layout.padding_rows = dice.chance(0.3) ? dice.in(1, 4) : 0;
}

RequestLengths draw_lengths(Dice& dice, bool decode) {
  RequestLengths lengths;
  lengths.query_len = decode             ? 1
                      : dice.chance(0.5) ? 1
                      : dice.chance(0.1) ? 0
                      : dice.chance(0.3) ? dice.in(30, 140)
                                         : dice.in(2, 20);
  const double kind = dice.uniform();
  if (kind < 0.05)
    lengths.kv_len = 0;
  else if (kind < 0.15)
    lengths.kv_len = dice.in(0, lengths.query_len);  // rows without keys
  else if (kind < 0.4)
    lengths.kv_len = lengths.query_len;  // no context yet
  else if (kind < 0.9)
    lengths.kv_len = lengths.query_len + dice.in(0, 100);
  else
    lengths.kv_len = lengths.query_len + dice.in(0, 1200);
  return lengths;
}

}  // namespace

Problem random_problem(uint64_t seed) {
  Dice dice(seed);
  Problem problem;
  problem.seed = seed;
  draw_heads(dice, problem.spec);
  draw_options(dice, problem.spec);
  draw_layout(dice, problem.layout);
  problem.q_amplitude = static_cast<float>(dice.of({1.0, 1.0, 0.1, 4.0, 20.0}));
  const bool decode = dice.chance(0.35);
  const int32_t num_requests = dice.in(dice.chance(0.05) ? 0 : 1, dice.chance(0.2) ? 12 : 4);
  const double cost_of_pair =
      problem.spec.num_query_heads * double(problem.spec.head_dim_qk + problem.spec.dim_vo());
  double budget = 4e6;
  for (int32_t b = 0; b < num_requests; b++) {
    RequestLengths lengths = draw_lengths(dice, decode);
    lengths.id = b;
    const double cost = cost_of_pair * lengths.query_len * lengths.kv_len;
    if (cost > budget) lengths.query_len = std::min(lengths.query_len, 3);
    if (cost_of_pair * lengths.query_len * lengths.kv_len > budget)
      lengths.kv_len = std::min(lengths.kv_len, dice.in(1, 20));
    budget -= cost_of_pair * lengths.query_len * lengths.kv_len;
    problem.requests.push_back(lengths);
  }
  return problem;
}

Problem random_gpu_problem(uint64_t seed, const DeviceInfo& gpu) {
  for (;; seed += 1'000'000) {
    Problem problem = random_problem(seed);
    AttentionSpec& spec = problem.spec;
    if (spec.dtype == DType::kFloat32) spec.dtype = DType::kBFloat16;
    spec.head_dim_qk = std::min(spec.head_dim_qk, 256);
    spec.head_dim_vo = std::min(spec.head_dim_vo, 256);
    spec.kv_scales = KvScales::kNone;
    Layout& layout = problem.layout;
    layout.q_head_pad = layout.q_head_pad / 8 * 8;
    layout.out_head_pad = layout.out_head_pad / 2 * 2;
    for (const BackendVerdict& its : explain(spec, gpu, {.backend = "flash_attention"}))
      if (its.backend == BackendId::kFlashAttention && its.accepted) return problem;
  }
}

}  // namespace rapt::test
