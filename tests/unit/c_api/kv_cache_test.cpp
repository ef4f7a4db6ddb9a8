#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

rapt_kv_cache_geometry packed_geometry() {
  return {.struct_size = sizeof(rapt_kv_cache_geometry),
          .shape = RAPT_KV_PACKED,
          .layout = RAPT_HND,
          .num_pages = 5,
          .page_size = 4,
          .num_kv_heads = 2,
          .head_dim_qk = 24,
          .head_dim_vo = 16,
          .format = RAPT_KV_FLOAT16,
          .num_layers = 3};
}

TEST(CKvCache, counts_bytes_and_axes) {
  const rapt_kv_cache_geometry geometry = packed_geometry();
  int64_t total = 0, page = 0, sizes[RAPT_KV_MAX_AXES];
  int32_t num_axes = 0, order[RAPT_KV_MAX_AXES];
  EXPECT_TRUE(succeeded(rapt_kv_cache_total_bytes(&geometry, &total)));
  EXPECT_TRUE(succeeded(rapt_kv_cache_page_bytes(&geometry, &page)));
  EXPECT_EQ(page, 4 * 2 * (24 + 16) * 2);
  EXPECT_EQ(total, page * 5 * 3);
  EXPECT_TRUE(succeeded(rapt_kv_cache_axes(&geometry, &num_axes, sizes, order)));
  const KvCacheGeometry cpp{.shape = KvShape::kPacked,
                            .layout = KvLayout::kHND,
                            .num_pages = 5,
                            .page_size = 4,
                            .num_kv_heads = 2,
                            .head_dim_qk = 24,
                            .head_dim_vo = 16,
                            .format = KvFormat::kFloat16,
                            .num_layers = 3};
  EXPECT_EQ(std::vector<int64_t>(sizes, sizes + num_axes), cpp.logical_shape());
  EXPECT_EQ(std::vector<int32_t>(order, order + num_axes), cpp.stride_order());
}

TEST(CKvCache, views_a_layer_as_the_cpp_interface_does) {
  const rapt_kv_cache_geometry geometry = packed_geometry();
  int64_t total = 0;
  ASSERT_TRUE(succeeded(rapt_kv_cache_total_bytes(&geometry, &total)));
  std::vector<char> pool(total);
  DLTensor k{}, v{};
  int64_t ints[RAPT_KV_VIEW_INTS];
  ASSERT_TRUE(succeeded(rapt_kv_cache_view(&geometry, pool.data(), 2, {kDLCPU, 0}, &k, &v, ints)));
  const KvCacheView expected = KvCacheGeometry{.shape = KvShape::kPacked,
                                               .layout = KvLayout::kHND,
                                               .num_pages = 5,
                                               .page_size = 4,
                                               .num_kv_heads = 2,
                                               .head_dim_qk = 24,
                                               .head_dim_vo = 16,
                                               .format = KvFormat::kFloat16,
                                               .num_layers = 3}
                                   .view(pool.data(), 2);
  for (const auto& [c, cpp] : {std::pair{k, expected.k}, std::pair{v, expected.v}}) {
    EXPECT_EQ(static_cast<char*>(c.data) + c.byte_offset, cpp.data);
    ASSERT_EQ(c.ndim, cpp.rank);
    for (int axis = 0; axis < c.ndim; axis++) {
      EXPECT_EQ(c.shape[axis], cpp.shape[axis]);
      EXPECT_EQ(c.strides[axis], cpp.stride[axis]);
    }
    EXPECT_EQ(c.dtype.code, kDLFloat);
    EXPECT_EQ(c.dtype.bits, 16);
    EXPECT_EQ(c.device.device_type, kDLCPU);
  }
}

TEST(CKvCache, follows_a_spec) {
  const rapt_attention_spec spec = {.struct_size = sizeof spec,
                                    .num_query_heads = 8,
                                    .num_kv_heads = 2,
                                    .head_dim_qk = 64,
                                    .dtype = {kDLBfloat, 16, 1},
                                    .page_size = 32};
  rapt_kv_cache_geometry geometry{};
  geometry.struct_size = sizeof geometry;
  ASSERT_TRUE(
      succeeded(rapt_kv_cache_geometry_of(&spec, 7, RAPT_KV_KV_PAGES, RAPT_HND, 2, &geometry)));
  EXPECT_EQ(geometry.shape, RAPT_KV_KV_PAGES);
  EXPECT_EQ(geometry.layout, RAPT_HND);
  EXPECT_EQ(geometry.num_pages, 7);
  EXPECT_EQ(geometry.page_size, 32);
  EXPECT_EQ(geometry.num_kv_heads, 2);
  EXPECT_EQ(geometry.head_dim_qk, 64);
  EXPECT_EQ(geometry.format, RAPT_KV_BFLOAT16);
  EXPECT_EQ(geometry.num_layers, 2);
  EXPECT_TRUE(refused(rapt_kv_cache_geometry_of(&spec, 7, 3, RAPT_HND, 2, &geometry),
                      RAPT_INVALID_ARGUMENT, "shape is 3"));
  EXPECT_TRUE(refused(rapt_kv_cache_geometry_of(&spec, -7, 0, RAPT_HND, 2, &geometry),
                      RAPT_INVALID_ARGUMENT, "num_pages"));
}

TEST(CKvCache, refuses_what_it_cannot_view) {
  const rapt_kv_cache_geometry geometry = packed_geometry();
  std::vector<char> pool(1 << 16);
  DLTensor k{}, v{};
  const DLTensor untouched{};
  int64_t ints[RAPT_KV_VIEW_INTS];
  auto view = [&](int32_t layer, DLDevice device) {
    return rapt_kv_cache_view(&geometry, pool.data(), layer, device, &k, &v, ints);
  };
  EXPECT_TRUE(refused(view(3, {kDLCPU, 0}), RAPT_INVALID_ARGUMENT, "layer"));
  EXPECT_TRUE(refused(view(0, {kDLMetal, 0}), RAPT_INVALID_ARGUMENT, "device type 8"));
  EXPECT_EQ(std::memcmp(&k, &untouched, sizeof k), 0);
  rapt_kv_cache_geometry bad = geometry;
  bad.format = -1;
  int64_t bytes = -1;
  EXPECT_TRUE(refused(rapt_kv_cache_total_bytes(&bad, &bytes), RAPT_INVALID_ARGUMENT, "format"));
  EXPECT_EQ(bytes, -1);
}

TEST(CKvCache, expands_pages_and_finds_slots) {
  const int32_t managers[] = {4, 0, -1};
  int32_t pages[6];
  EXPECT_TRUE(succeeded(rapt_expand_pages(managers, 3, 2, pages)));
  EXPECT_EQ(std::vector<int32_t>(pages, pages + 4), (std::vector<int32_t>{8, 9, 0, 1}));
  EXPECT_LT(pages[4], 0);
  EXPECT_LT(pages[5], 0);
  int64_t slot = 0;
  EXPECT_TRUE(succeeded(rapt_slot_of(pages, 4, 16, 35, &slot)));
  EXPECT_EQ(slot, 0 * 16 + 3);
  EXPECT_TRUE(refused(rapt_expand_pages(managers, 3, 0, pages), RAPT_INVALID_ARGUMENT, "ratio"));
  EXPECT_EQ(rapt_slot_of(pages, 4, 16, 64, &slot), RAPT_INVALID_ARGUMENT);
  EXPECT_TRUE(
      refused(rapt_slot_of(pages, 6, 16, 64, &slot), RAPT_INVALID_ARGUMENT, "position 64 has no"));
  EXPECT_EQ(slot, 0 * 16 + 3) << "an error must not write";
}

}  // namespace
}  // namespace rapt::test
