// The tables themselves: no row repeats another, and none lies in the shadow of another.
#include <gtest/gtest.h>

#include <set>

#include "select/checks.hpp"
#include "support.hpp"

namespace rapt {
namespace {

TEST(Tables, every_backend_has_rows_and_they_are_neighbours) {
  std::set<BackendId> finished;
  BackendId current = capabilities().front().backend;
  for (const Capability& row : capabilities()) {
    if (row.backend == current) continue;
    EXPECT_TRUE(finished.insert(current).second) << to_string(current);
    current = row.backend;
  }
  finished.insert(current);
  EXPECT_EQ(finished.size(), kAllBackends.size());
}

TEST(Tables, names_are_unique) {
  std::set<std::string> names;
  for (const Capability& row : capabilities())
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Tables, the_cpu_backends_and_flash_attention_2_are_built) {
  for (const Capability& row : capabilities())
    EXPECT_EQ(row.built,
              row.device == DeviceKind::kCpu ||
                  (row.backend == BackendId::kFlashAttention && row.version == 2 && RAPT_CUDA))
        << row.name;
}

// Tries plain problems and each option alone, on every architecture, and asks for each row whether
// some of them is judged by it and accepted.
TEST(Tables, every_row_is_the_one_chosen_for_some_problem) {
  std::set<const Capability*> used;
  std::vector<DeviceInfo> devices = {device_info("cpu-avx2")};
  for (int32_t sm : {75, 80, 90, 100, 103, 120, 121})
    devices.push_back(device_info(concat("sm", sm)));
  for (const DeviceInfo& device : devices)
    for (int32_t head_dim : {20, 128, 256, 512})
      for (int32_t kv_heads : {8, 32})
        for (int32_t page_size : {8, 16, 128})
          for (KvFormat format : {KvFormat::kAuto, KvFormat::kTurboQuant4BitNc})
            for (const char* name : {"flash_attention", "flashinfer", "portable", "flex",
                                     "turboquant", "paged_attention", "cpu", "reference"})
              for (int32_t version : {2, 3, 4}) {
                AttentionSpec spec = make_spec(head_dim);
                spec.dtype = DType::kFloat16;
                spec.num_kv_heads = kv_heads;
                spec.page_size = page_size;
                spec.kv_format = format;
                const SelectOptions options{.backend = name, .flash_attention_version = version};
                for (const Judgement& judgement : judge({spec, device, options}, all_built))
                  if (judgement.verdict.accepted) used.insert(judgement.row);
              }
  for (const Capability& row : capabilities()) EXPECT_TRUE(used.count(&row)) << row.name;
}

TEST(Tables, bounds_are_not_empty) {
  for (const Capability& row : capabilities()) {
    SCOPED_TRACE(row.name);
    EXPECT_LE(row.compute_capability.min, row.compute_capability.max);
    EXPECT_LE(row.head_dims.equal.min, row.head_dims.equal.max);
    EXPECT_FALSE(row.dtypes.empty());
    EXPECT_FALSE(row.kinds.empty());
    EXPECT_TRUE(row.kv_scales.contains(KvScales::kNone));
    EXPECT_TRUE(row.unquantised_kv || !row.quantised_kv.empty());
    EXPECT_TRUE((row.page_sizes.multiple_of > 0) != !row.page_sizes.listed.empty());
    // A shard's partial result is merged by its log-sum-exp.
    EXPECT_TRUE(row.context_parallel == ContextParallel::kNo || row.lse);
  }
}

}  // namespace
}  // namespace rapt
