// Cache geometry against addresses written out by hand, and by brute force.
#include "rapt/kv_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

#include "rapt/error.hpp"
#include "support/error_of.hpp"

namespace rapt {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr KvShape kShapes[] = {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked};
constexpr KvLayout kLayouts[] = {KvLayout::kNHD, KvLayout::kHND};

std::string name_of(const KvCacheGeometry& g) {
  return std::string(to_string(g.shape)) + " " + to_string(g.layout) + " layers " +
         std::to_string(g.num_layers) + " page " + std::to_string(g.page_size);
}

// Calls visit(kv, layer, page, token, head, dim, byte) for every element of both views.
void for_each_element(const KvCacheGeometry& g, std::byte* base, const auto& visit) {
  for (int32_t layer = 0; layer < std::max(g.num_layers, 1); layer++) {
    const KvCacheView view = g.view(base, layer);
    const TensorView* halves[] = {&view.k, &view.v};
    for (int64_t kv = 0; kv < 2; kv++) {
      const TensorView& t = *halves[kv];
      for (int64_t page = 0; page < t.shape[0]; page++)
        for (int64_t token = 0; token < t.shape[1]; token++)
          for (int64_t head = 0; head < t.shape[2]; head++)
            for (int64_t dim = 0; dim < t.shape[3]; dim++) {
              const int64_t offset =
                  page * t.stride[0] + token * t.stride[1] + head * t.stride[2] + dim * t.stride[3];
              visit(kv, layer, page, token, head, dim,
                    static_cast<std::byte*>(t.data) - base +
                        offset * static_cast<int64_t>(size_of(t.dtype)));
            }
    }
  }
}

std::vector<KvCacheGeometry> small_geometries() {
  std::vector<KvCacheGeometry> all;
  for (KvShape shape : kShapes)
    for (KvLayout layout : kLayouts)
      for (int32_t layers : {0, 1, 3})
        for (int32_t page_size : {1, 3, 16})
          for (KvFormat format : {KvFormat::kFloat32, KvFormat::kFloat16, KvFormat::kBFloat16,
                                  KvFormat::kFp8E4M3, KvFormat::kFp8E5M2})
            all.push_back({.shape = shape,
                           .layout = layout,
                           .num_pages = 4,
                           .page_size = page_size,
                           .num_kv_heads = 2,
                           .head_dim_qk = 5,
                           .head_dim_vo = shape == KvShape::kPacked ? 7 : 0,
                           .format = format,
                           .num_layers = layers});
  return all;
}

TEST(KvCacheGeometry, covers_every_byte_of_the_pool_once) {
  for (const KvCacheGeometry& g : small_geometries()) {
    SCOPED_TRACE(name_of(g));
    std::vector<std::byte> pool(g.total_bytes());
    std::vector<int> hits(pool.size(), 0);
    const auto element_bytes = static_cast<int64_t>(size_of(*storage_dtype(g.format)));
    bool inside = true;
    for_each_element(g, pool.data(), [&](auto, auto, auto, auto, auto, auto, int64_t byte) {
      inside &= byte >= 0 && byte + element_bytes <= std::ssize(hits);
      for (int64_t i = 0; inside && i < element_bytes; i++) hits[byte + i]++;
    });
    ASSERT_TRUE(inside);
    EXPECT_EQ(std::ranges::count(hits, 1), std::ssize(hits));
  }
}

// The physical orders of spec section 3.1 as index arithmetic, slowest axis first.
int64_t element_by_hand(const KvCacheGeometry& g, int64_t kv, int64_t l, int64_t p, int64_t t,
                        int64_t h, int64_t d) {
  const int64_t L = std::max(g.num_layers, 1), N = g.num_pages, P = g.page_size, H = g.num_kv_heads,
                D = g.head_dim_qk;
  const int64_t row = D + (g.head_dim_vo ? g.head_dim_vo : D);  // packed
  const bool nhd = g.layout == KvLayout::kNHD;
  switch (g.shape) {
    case KvShape::kPagesKv:  // (pages, layers, 2, P, H, D) and (pages, H, layers, 2, P, D)
      if (nhd) return ((((p * L + l) * 2 + kv) * P + t) * H + h) * D + d;
      if (g.num_layers == 0) return (((p * 2 + kv) * H + h) * P + t) * D + d;
      return ((((p * H + h) * L + l) * 2 + kv) * P + t) * D + d;
    case KvShape::kKvPages:  // (2, pages, layers, P, H, D) and (2, pages, H, layers, P, D)
      if (nhd) return ((((kv * N + p) * L + l) * P + t) * H + h) * D + d;
      return ((((kv * N + p) * H + h) * L + l) * P + t) * D + d;
    case KvShape::kPacked:  // (pages, layers, P, H, row) and (pages, H, layers, P, row)
      if (nhd) return (((p * L + l) * P + t) * H + h) * row + kv * D + d;
      return (((p * H + h) * L + l) * P + t) * row + kv * D + d;
  }
  return -1;
}

TEST(KvCacheGeometry, puts_every_element_where_the_written_out_order_says) {
  for (const KvCacheGeometry& g : small_geometries()) {
    SCOPED_TRACE(name_of(g));
    std::vector<std::byte> pool(g.total_bytes());
    const auto element_bytes = static_cast<int64_t>(size_of(*storage_dtype(g.format)));
    int64_t wrong = 0;
    for_each_element(
        g, pool.data(),
        [&](int64_t kv, int64_t l, int64_t p, int64_t t, int64_t h, int64_t d, int64_t byte) {
          wrong += byte != element_by_hand(g, kv, l, p, t, h, d) * element_bytes;
        });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(KvCacheGeometry, stride_order_is_the_table_of_the_spec) {
  auto order = [](KvShape shape, KvLayout layout, int32_t layers) {
    return KvCacheGeometry{.shape = shape, .layout = layout, .num_layers = layers}.stride_order();
  };
  using Axes = std::vector<int32_t>;
  EXPECT_EQ(order(KvShape::kPagesKv, KvLayout::kNHD, 0), (Axes{0, 1, 2, 3, 4}));
  EXPECT_EQ(order(KvShape::kPagesKv, KvLayout::kHND, 0), (Axes{0, 1, 3, 2, 4}));
  EXPECT_EQ(order(KvShape::kPagesKv, KvLayout::kNHD, 2), (Axes{1, 0, 2, 3, 4, 5}));
  EXPECT_EQ(order(KvShape::kPagesKv, KvLayout::kHND, 2), (Axes{1, 4, 0, 2, 3, 5}));
  EXPECT_EQ(order(KvShape::kPacked, KvLayout::kNHD, 0), (Axes{0, 2, 1, 3}));
  EXPECT_EQ(order(KvShape::kPacked, KvLayout::kHND, 0), (Axes{0, 1, 2, 3}));
  EXPECT_EQ(order(KvShape::kPacked, KvLayout::kNHD, 2), (Axes{1, 0, 3, 2, 4}));
  EXPECT_EQ(order(KvShape::kPacked, KvLayout::kHND, 2), (Axes{1, 2, 0, 3, 4}));
}

TEST(KvCacheGeometry, stride_order_is_a_permutation_with_rows_fastest) {
  for (const KvCacheGeometry& g : small_geometries()) {
    SCOPED_TRACE(name_of(g));
    std::vector<int32_t> order = g.stride_order(), all(g.logical_shape().size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order.back(), all.back());
    std::ranges::sort(order);
    EXPECT_EQ(order, all);
  }
}

TEST(KvCacheGeometry, logical_shapes_are_those_of_the_serving_engines) {
  KvCacheGeometry g{.num_pages = 9, .page_size = 16, .num_kv_heads = 8, .head_dim_qk = 128};
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(g.logical_shape(), (Sizes{9, 2, 16, 8, 128}));
  g.shape = KvShape::kKvPages;
  EXPECT_EQ(g.logical_shape(), (Sizes{2, 9, 16, 8, 128}));
  g.shape = KvShape::kPacked;
  EXPECT_EQ(g.logical_shape(), (Sizes{9, 8, 16, 256}));
  g.num_layers = 32;
  EXPECT_EQ(g.logical_shape(), (Sizes{32, 9, 8, 16, 256}));
  EXPECT_EQ(g.page_bytes(), 16 * 8 * 256 * 2);
  EXPECT_EQ(g.total_bytes(), 32 * 9 * g.page_bytes());
}

TEST(KvCacheGeometry, of_a_spec_resolves_auto_and_value_dims) {
  const AttentionSpec spec{.num_query_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim_qk = 192,
                           .head_dim_vo = 128,
                           .dtype = DType::kFloat16,
                           .page_size = 3};
  const KvCacheGeometry g = KvCacheGeometry::of(spec, 7, KvShape::kPacked, KvLayout::kHND);
  EXPECT_EQ(g.format, KvFormat::kFloat16);
  EXPECT_EQ(g.total_bytes(), 7 * 2 * 3 * (192 + 128) * 2);
}

TEST(KvCacheGeometry, page_offsets_pass_two_to_the_31) {  // public report C01
  // Page stride 16 * 2 * 8 * 128 = 2^15 elements: page 65536 starts 2^31 elements in.
  for (KvShape shape : {KvShape::kPagesKv, KvShape::kPacked})
    for (KvLayout layout : kLayouts) {
      const KvCacheGeometry g{.shape = shape,
                              .layout = layout,
                              .num_pages = 2147483647,
                              .num_kv_heads = 8,
                              .head_dim_qk = 128};
      std::byte base;  // nothing is read through the view
      const KvCacheView view = g.view(&base);
      for (int64_t page : {65535LL, 65536LL, 65537LL, 2147483646LL}) {
        EXPECT_EQ(page * view.k.stride[0], page * 32768);
        EXPECT_EQ(page * view.v.stride[0], page * 32768);
      }
      EXPECT_EQ(g.total_bytes(), 2147483647LL * 65536);
    }
  // And page stride 480 * 576, which wraps at page 7768.
  const KvCacheGeometry g{.shape = KvShape::kPacked,
                          .num_pages = 7769,
                          .page_size = 480,
                          .num_kv_heads = 1,
                          .head_dim_qk = 288};
  std::byte base;
  EXPECT_EQ(7768 * g.view(&base).k.stride[0], 2147696640LL);
}

TEST(KvCacheGeometry, refuses_sizes_that_overflow) {
  const int32_t huge = 2147483647;
  const KvCacheGeometry g{
      .num_pages = huge, .page_size = huge, .num_kv_heads = huge, .head_dim_qk = huge};
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { g.validate(); }),
              HasSubstr("does not fit in 64 bits"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { g.total_bytes(); }),
              HasSubstr("does not fit in 64 bits"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { g.page_bytes(); }),
              HasSubstr("does not fit in 64 bits"));
  std::byte base;
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { g.view(&base); }),
              HasSubstr("does not fit in 64 bits"));
  // Exactly 2^63 bytes: one too many.
  const KvCacheGeometry edge{
      .num_pages = 1 << 30, .page_size = 1 << 30, .num_kv_heads = 1, .head_dim_qk = 1};
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         KvCacheGeometry twice = edge;
                         twice.num_layers = 2;
                         twice.validate();
                       }),
              HasSubstr("does not fit in 64 bits"));
  EXPECT_EQ(edge.total_bytes(), int64_t{1} << 62);
}

TEST(KvCacheGeometry, names_what_is_wrong) {
  const KvCacheGeometry good{.num_pages = 4, .num_kv_heads = 2, .head_dim_qk = 64};
  good.validate();
  auto refused = [&](auto change) {
    KvCacheGeometry g = good;
    change(g);
    return error_of(ErrorCode::kInvalidArgument, [&] { g.validate(); });
  };
  EXPECT_THAT(refused([](auto& g) { g.num_pages = -1; }), HasSubstr("num_pages is -1"));
  EXPECT_THAT(refused([](auto& g) { g.num_pages = int64_t{1} << 31; }),
              HasSubstr("num_pages is 2147483648"));
  EXPECT_THAT(refused([](auto& g) { g.page_size = 0; }), HasSubstr("page_size is 0"));
  EXPECT_THAT(refused([](auto& g) { g.shape = static_cast<KvShape>(99); }),
              HasSubstr("shape is 99"));
  EXPECT_THAT(refused([](auto& g) { g.layout = static_cast<KvLayout>(2); }), HasSubstr("layout 2"));
  EXPECT_THAT(refused([](auto& g) { g.num_kv_heads = 0; }), HasSubstr("num_kv_heads is 0"));
  EXPECT_THAT(refused([](auto& g) { g.head_dim_qk = -8; }), HasSubstr("head_dim_qk is -8"));
  EXPECT_THAT(refused([](auto& g) { g.num_layers = -2; }), HasSubstr("num_layers is -2"));
  EXPECT_THAT(refused([](auto& g) { g.head_dim_vo = 32; }),
              AllOf(HasSubstr("head_dim_vo is 32"), HasSubstr("use shape packed")));
  EXPECT_THAT(refused([](auto& g) { g.format = KvFormat::kNvfp4; }),
              AllOf(HasSubstr("format is nvfp4"), HasSubstr("not whole elements")));
  EXPECT_THAT(refused([](auto& g) { g.format = KvFormat::kAuto; }), HasSubstr("format is auto"));
  std::byte base;
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { good.view(&base, 1); }),
              HasSubstr("layer is 1"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { good.view(nullptr); }),
              HasSubstr("base is null"));
  AttentionSpec ragged{.num_query_heads = 1, .num_kv_heads = 1, .head_dim_qk = 64, .page_size = 0};
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { KvCacheGeometry::of(ragged, 1); }),
              HasSubstr("page_size is 0"));
}

TEST(KvCacheGeometry, an_empty_pool_is_legal) {
  const KvCacheGeometry g{.num_pages = 0, .num_kv_heads = 2, .head_dim_qk = 64};
  EXPECT_EQ(g.total_bytes(), 0);
  EXPECT_EQ(g.view(nullptr).k.shape[0], 0);
}

}  // namespace
}  // namespace rapt
