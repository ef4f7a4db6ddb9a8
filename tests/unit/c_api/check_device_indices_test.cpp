// The checks of indices in device memory through the C interface, on an emulated GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "device_tensor.hpp"

namespace rapt::test {
namespace {

constexpr int64_t kPages = 3, kPageSize = 16, kHeads = 2, kDim = 8, kRow = kHeads * kDim;
constexpr uint16_t kOne = 0x3f80, kUntouched = 0x4000;  // 1 and 2 in bfloat16

TEST(CCheckDeviceIndices, names_the_slot_and_the_page_id_and_writes_nothing) {
  setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
  const rapt_context_options options = {.struct_size = sizeof options,
                                        .num_threads = 1,
                                        .check_device_indices = 1,
                                        .device = "emulated-sm80"};
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(&options, &context)));
  const rapt_attention_spec spec = {.struct_size = sizeof spec,
                                    .num_query_heads = kHeads,
                                    .num_kv_heads = kHeads,
                                    .head_dim_qk = kDim,
                                    .dtype = dl(DType::kBFloat16),
                                    .page_size = kPageSize};
  rapt_attention* attention = nullptr;
  ASSERT_TRUE(succeeded(rapt_attention_create(context, &spec, nullptr, &attention)));
  {
    // Of one token; its cache has room for 48, all with values of 2.
    DeviceTensor k(context, DType::kBFloat16, {1, kHeads, kDim});
    DeviceTensor out(context, DType::kBFloat16, {1, kHeads, kDim});
    DeviceTensor cache(context, DType::kBFloat16, {kPages, kPageSize, kHeads, kDim});
    DeviceTensor slots(context, DType::kInt64, {1}), table(context, DType::kInt32, {1, 2});
    k.set(std::vector<uint16_t>(kRow, kOne));
    out.set(std::vector<uint16_t>(kRow, kUntouched));
    cache.set(std::vector<uint16_t>(kPages * kPageSize * kRow, kUntouched));

    const rapt_write_kv_args write = {.struct_size = sizeof write,
                                      .k = &k.tensor,
                                      .v = &k.tensor,
                                      .slot_mapping = &slots.tensor,
                                      .cache_k = &cache.tensor,
                                      .cache_v = &cache.tensor};
    slots.set(std::vector<int64_t>{48});
    EXPECT_TRUE(refused(rapt_write_kv(attention, &write), RAPT_INVALID_ARGUMENT,
                        "slot_mapping[0] is 48: the cache has slots 0 to 47"));
    EXPECT_EQ(cache.halves(), std::vector<uint16_t>(kPages * kPageSize * kRow, kUntouched));
    slots.set(std::vector<int64_t>{32});  // the first of page 2
    EXPECT_TRUE(succeeded(rapt_write_kv(attention, &write)));
    std::vector<uint16_t> written(kPages * kPageSize * kRow, kUntouched);
    std::fill_n(written.begin() + 32 * kRow, kRow, kOne);
    EXPECT_EQ(cache.halves(), written);

    const int32_t query_start[] = {0, 1}, kv_len[] = {1};
    const rapt_batch batch = {.struct_size = sizeof batch,
                              .num_requests = 1,
                              .query_start = query_start,
                              .kv_len = kv_len,
                              .page_table = &table.tensor,
                              .num_pages = kPages};
    rapt_plan* plan = nullptr;
    table.set(std::vector<int32_t>{3, -1});
    ASSERT_TRUE(succeeded(rapt_plan_create(attention, &batch, &plan)));
    const rapt_run_args run = {.struct_size = sizeof run,
                               .q = &k.tensor,
                               .k = &cache.tensor,
                               .v = &cache.tensor,
                               .out = &out.tensor};
    EXPECT_TRUE(refused(rapt_run(plan, &run), RAPT_INVALID_ARGUMENT,
                        "page_table[0, 0] is 3, but num_pages is 3"));
    EXPECT_EQ(out.halves(), std::vector<uint16_t>(kRow, kUntouched));
    table.set(std::vector<int32_t>{2, -1});
    EXPECT_TRUE(succeeded(rapt_run(plan, &run)));
    EXPECT_EQ(out.halves(), std::vector<uint16_t>(kRow, kOne));
    rapt_plan_destroy(plan);
  }
  rapt_attention_destroy(attention);
  rapt_context_destroy(context);
}

}  // namespace
}  // namespace rapt::test
