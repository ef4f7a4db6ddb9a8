// Plans of graph envelopes through the C interface, on an emulated GPU; runs are not captured.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "device_tensor.hpp"

namespace rapt::test {
namespace {

constexpr int64_t kEnvelopePages = 3, kHeadDim = 8;

TEST(CGraphPlan, has_one_batch_after_the_other) {
  setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
  const rapt_context_options options = {
      .struct_size = sizeof options, .num_threads = 1, .device = "emulated-sm80"};
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(&options, &context)));
  const rapt_attention_spec spec = {.struct_size = sizeof spec,
                                    .num_query_heads = 1,
                                    .num_kv_heads = 1,
                                    .head_dim_qk = kHeadDim,
                                    .dtype = dl(DType::kBFloat16),
                                    .page_size = 1};
  rapt_attention* attention = nullptr;
  ASSERT_TRUE(succeeded(rapt_attention_create(context, &spec, nullptr, &attention)));
  {
    // Values of page p are p + 1: a request's output is its one page's.
    DeviceTensor q(context, DType::kBFloat16, {2, 1, kHeadDim});
    DeviceTensor out(context, DType::kBFloat16, {2, 1, kHeadDim});
    DeviceTensor cache(context, DType::kBFloat16, {kEnvelopePages, 1, 1, kHeadDim});
    constexpr uint16_t kValues[kEnvelopePages] = {0x3f80, 0x4000, 0x4040};  // 1, 2, 3 in bfloat16
    std::vector<uint16_t> values;
    for (const uint16_t value : kValues) values.insert(values.end(), kHeadDim, value);
    q.set(std::vector<uint16_t>(2 * kHeadDim, 0));
    cache.set(values);
    const rapt_graph_envelope envelope = {.struct_size = sizeof envelope,
                                          .max_requests = 2,
                                          .max_tokens = 2,
                                          .max_query_len = 1,
                                          .max_kv_len = 1,
                                          .num_pages = kEnvelopePages};
    rapt_plan* plan = nullptr;
    ASSERT_TRUE(succeeded(rapt_graph_plan_create(attention, &envelope, nullptr, &plan)));
    int64_t num_tokens = 0, mask_bytes = 0;
    EXPECT_TRUE(succeeded(rapt_plan_num_tokens(plan, &num_tokens)));
    EXPECT_EQ(num_tokens, 2);
    EXPECT_TRUE(succeeded(rapt_graph_custom_mask_bytes(&envelope, &mask_bytes)));
    EXPECT_EQ(mask_bytes, 1);
    const rapt_run_args run = {.struct_size = sizeof run,
                               .q = &q.tensor,
                               .k = &cache.tensor,
                               .v = &cache.tensor,
                               .out = &out.tensor};
    constexpr uint16_t kStays = 0x4100;
    const auto outputs_of = [&](const std::vector<int32_t>& pages) {
      std::vector<int32_t> query_start{0}, kv_len;
      for (size_t b = 0; b < pages.size(); b++)
        query_start.push_back(static_cast<int32_t>(b) + 1), kv_len.push_back(1);
      int64_t shape[] = {static_cast<int64_t>(pages.size()), 1};
      DLTensor table = {.data = const_cast<int32_t*>(pages.data()),
                        .device = {kDLCPU, 0},
                        .ndim = 2,
                        .dtype = dl(DType::kInt32)};
      table.shape = shape;
      const rapt_batch batch = {.struct_size = sizeof batch,
                                .num_requests = shape[0],
                                .query_start = query_start.data(),
                                .kv_len = kv_len.data(),
                                .page_table = &table,
                                .num_pages = kEnvelopePages};
      if (pages.size() > 2) {
        EXPECT_TRUE(refused(rapt_graph_replan(plan, &batch, nullptr), RAPT_INVALID_ARGUMENT,
                            "the number of requests is 3, at most 2; the number of query tokens "
                            "is 3, at most 2"));
      } else {
        EXPECT_TRUE(refused(rapt_replan(plan, &batch), RAPT_INVALID_ARGUMENT, "name the stream"));
        EXPECT_TRUE(succeeded(rapt_graph_replan(plan, &batch, nullptr)));
      }
      out.set(std::vector<uint16_t>(2 * kHeadDim, kStays));
      EXPECT_TRUE(succeeded(rapt_run(plan, &run)));
      const std::vector<uint16_t> all = out.halves();
      return std::vector<uint16_t>{all[0], all[kHeadDim]};
    };
    using Values = std::vector<uint16_t>;
    EXPECT_EQ(outputs_of({2, 0}), (Values{kValues[2], kValues[0]}));
    EXPECT_EQ(outputs_of({1}), (Values{kValues[1], kStays}));
    EXPECT_EQ(outputs_of({0, 1, 2}), (Values{kValues[1], kStays}));  // the batch before
    rapt_plan_destroy(plan);

    rapt_graph_envelope none = envelope;
    none.max_kv_len = 0;
    EXPECT_TRUE(refused(rapt_graph_plan_create(attention, &none, nullptr, &plan),
                        RAPT_INVALID_ARGUMENT, "max_kv_len is 0: must be from 1"));
  }
  rapt_attention_destroy(attention);
  rapt_context_destroy(context);
}

}  // namespace
}  // namespace rapt::test
