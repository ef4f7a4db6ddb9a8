// A moderate matrix of problems: every value of every axis beside many values of the others.
#pragma once

#include <array>
#include <vector>

#include "support/check.hpp"

namespace rapt::test {

// Axes step at their own pace along the list, so that each pair of nearby axes meets in most of its
// combinations without the product of all of them. `first` picks a stretch of the list for
// one test program. GPUs have one stretch for all of them, since each problem has kernels of its
// own, and neither float32 nor head dims past 256.
inline std::vector<Problem> combinations(size_t count, size_t first = 0) {
  if (!on_cpu()) {
    first = 0;
    count = sized(std::min<size_t>(count, 14), size_t{1});
  }
  constexpr std::array kDTypes = {DType::kBFloat16, DType::kFloat32, DType::kFloat16};
  const std::vector<std::pair<int, int>> dims = {{8, 0},   {40, 0},  {64, 0},    {72, 0},  {80, 0},
                                                 {96, 0},  {128, 0}, {192, 128}, {256, 0}, {512, 0},
                                                 {72, 40}, {192, 0}, {64, 128}};
  const std::vector<std::pair<int, int>> heads = {{2, 2}, {4, 2}, {3, 1},  {8, 2}, {5, 1},
                                                  {7, 1}, {8, 1}, {16, 1}, {71, 1}};
  constexpr std::array kPageSizes = {16, 1, 0, 64, 3};
  constexpr std::array kShapes = {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked};
  const std::vector<std::vector<RequestLengths>> batches = {
      {{1, 37}, {1, 1}, {1, 90}},         // decode
      {{1, 50}, {12, 12}, {0, 9}},        // mixed, with padding
      {{33, 33}, {4, 70}},                // prefill, and a chunk of one
      {{5, 3}, {3, 0}, {1, 0}, {2, 30}},  // rows without keys
  };
  enum Mask { kPlain, kWindow, kBothWays, kSoftcap, kBits, kAlibi, kBand, kSinks, kEverything };
  constexpr size_t kMasks = 9;

  std::vector<Problem> problems;
  for (size_t n = first; n < first + count; n++) {
    const auto [qk, vo] = dims[n % dims.size()];
    const auto [hq, hkv] = heads[(n / 2 + n) % heads.size()];
    Problem problem{.spec = make_spec(kDTypes[n % 3], hq, hkv, qk, vo),
                    .requests = batches[(n / 3) % batches.size()]};
    problem.seed = n + 1;
    if (!on_cpu()) {
      if (problem.spec.dtype == DType::kFloat32) problem.spec.dtype = finest_dtype();
      problem.spec.head_dim_qk = std::min(qk, 256);
    }
    AttentionSpec& spec = problem.spec;
    spec.page_size = kPageSizes[n % kPageSizes.size()];
    problem.layout.shape = kShapes[(n / 5) % 3];
    problem.layout.order = n / 7 % 2 ? KvLayout::kHND : KvLayout::kNHD;
    problem.layout.num_layers = n % 11 == 3 ? 2 : 0;
    problem.layout.manager_ratio = n % 6 == 1 ? 2 : 1;
    problem.layout.kv_gap = n % 3;
    problem.layout.table_pad = n % 2;
    problem.layout.padding_rows = n % 4 == 1;
    problem.layout.packed_qkv = n % 5 == 2;
    const auto mask = static_cast<Mask>((n + n / kMasks) % kMasks);
    if (mask == kWindow || mask == kEverything) spec.window = sliding_window(9);
    if (mask == kBothWays) spec.causal = false;
    if (mask == kSoftcap || mask == kEverything) spec.softcap = 1.5f;
    if (mask == kBits || mask == kEverything) spec.custom_mask = true;
    if (mask == kAlibi || mask == kEverything) spec.alibi = true;
    if (mask == kSinks || mask == kEverything) spec.sinks = true;
    if (mask == kBand) {
      spec.causal = false;
      spec.window = {5, 2};
    }
    if (mask == kBothWays && spec.page_size == 0)
      spec.kind = n % 2 ? AttentionKind::kEncoder : AttentionKind::kEncoderOnly;
    if (mask == kBothWays && spec.page_size != 0 && n % 2)
      spec.kind = AttentionKind::kEncoderDecoder;
    if (spec.kind != AttentionKind::kDecoder) spec.causal.reset();
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace rapt::test
