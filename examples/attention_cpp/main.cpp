// One step of two requests over a paged cache: one decodes its 20th token, one prefills a prompt of
// 12. Zero queries give every visible key the same weight, so the answers are known: a query at
// position p sees p + 1 keys, lse is ln(p + 1), and out is the mean of the values it sees.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "rapt/rapt.hpp"

namespace {

using rapt::DType;
using rapt::TensorView;

// begin: step
// Lengths of the step, and where each request's tokens are: page 3 then 5, and page 0.
const std::vector<int32_t> query_start{0, 1, 13}, kv_len{20, 12};
const std::vector<int32_t> page_table{3, 5, 0, -1};

std::vector<float> attend(std::vector<float>& lse) {
  // begin: choose
  rapt::Context context;
  const rapt::AttentionSpec spec{.num_query_heads = 8,
                                 .num_kv_heads = 2,
                                 .head_dim_qk = 64,
                                 .dtype = DType::kFloat32,
                                 .page_size = 16,
                                 .needs_lse = true};
  const rapt::Attention attention(context, spec);
  std::printf("%s runs it; ", rapt::to_string(attention.selection().backend));
  // end: choose

  // begin: pool
  // The caller owns the pool; the geometry says how K and V lie in it.
  const auto geometry = rapt::KvCacheGeometry::of(spec, 8);
  std::vector<std::byte> pool(static_cast<size_t>(geometry.total_bytes()));
  const rapt::KvCacheView cache = geometry.view(pool.data());
  // end: pool

  // Keys and values of all 32 tokens; a token's value is its position.
  std::vector<float> k(32 * 2 * 64, 0.5f), v(32 * 2 * 64);
  std::vector<int64_t> slots;
  for (int b = 0; b < 2; b++)
    for (int position = 0; position < kv_len[b]; position++) {
      std::fill_n(&v[slots.size() * 2 * 64], 2 * 64, static_cast<float>(position));
      slots.push_back(rapt::slot_of({&page_table[b * 2], 2}, spec.page_size, position));
    }
  attention.write_kv({.k = TensorView::contiguous(k.data(), DType::kFloat32, {32, 2, 64}),
                      .v = TensorView::contiguous(v.data(), DType::kFloat32, {32, 2, 64}),
                      .slot_mapping = TensorView::contiguous(slots.data(), DType::kInt64, {32}),
                      .cache = cache});

  // begin: run
  // Planned once per step, run once per layer.
  const rapt::Plan plan = attention.plan(
      {.query_start = query_start,
       .kv_len = kv_len,
       .page_table = TensorView::contiguous(page_table.data(), DType::kInt32, {2, 2}),
       .num_pages = geometry.num_pages});
  // begin: workspace
  struct alignas(rapt::kWorkspaceAlignment) Line {
    std::byte bytes[rapt::kWorkspaceAlignment];
  };
  std::vector<Line> workspace(plan.workspace_bytes() / sizeof(Line) + 1);
  // end: workspace
  std::vector<float> q(13 * 8 * 64, 0.0f), out(13 * 8 * 64);
  attention.run(plan, {.q = TensorView::contiguous(q.data(), DType::kFloat32, {13, 8, 64}),
                       .k = cache.k,
                       .v = cache.v,
                       .out = TensorView::contiguous(out.data(), DType::kFloat32, {13, 8, 64}),
                       .lse = TensorView::contiguous(lse.data(), DType::kFloat32, {8, 13}),
                       .workspace = {workspace.data(), workspace.size() * sizeof(Line)}});
  // end: run
  return out;
}
// end: step

}  // namespace

int main() {
  std::vector<float> lse(8 * 13);
  const std::vector<float> out = attend(lse);
  double worst = 0;
  for (int token = 0; token < 13; token++) {
    const double position = token == 0 ? 19 : token - 1;
    for (int head = 0; head < 8; head++) {
      worst = std::max(worst, std::abs(lse[head * 13 + token] - std::log(position + 1)));
      for (int d = 0; d < 64; d++)
        worst = std::max(worst, std::abs(out[(token * 8 + head) * 64 + d] - position / 2));
    }
  }
  std::printf("13 tokens of 2 requests: off by %.1e at most\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
