// Published figures of the devices, and the names that lead to them.
#include <gtest/gtest.h>

#include <set>

#include "core/check.hpp"
#include "rapt/device.hpp"

namespace rapt {
namespace {

// cudaDevAttrMaxSharedMemoryPerBlockOptin as deviceQuery reports it.
TEST(DeviceTable, shared_memory_is_the_opt_in_maximum) {
  const std::pair<const char*, int64_t> expected[] = {
      {"t4", 65536},    {"a100", 166912},    {"a10", 101376},     {"rtx3090", 101376},
      {"l4", 101376},   {"rtx4090", 101376}, {"h100", 232448},    {"h200", 232448},
      {"b200", 232448}, {"gb300", 232448},   {"rtx5090", 101376}, {"gb10", 101376}};
  for (const auto& [name, bytes] : expected)
    EXPECT_EQ(device_info(name).shared_memory_bytes_per_block, bytes) << name;
}

TEST(DeviceTable, figures_are_the_published_ones) {
  struct Row {
    const char* name;
    int32_t compute_capability, num_sms;
    double gigabytes_per_second;
  };
  const Row expected[] = {
      {"t4", 75, 40, 320},        {"a100", 80, 108, 2039},     {"a10", 86, 72, 600},
      {"rtx3090", 86, 82, 936},   {"l4", 89, 58, 300},         {"l40s", 89, 142, 864},
      {"rtx4090", 89, 128, 1008}, {"h100", 90, 132, 3350},     {"h200", 90, 132, 4800},
      {"gh200", 90, 132, 4000},   {"b200", 100, 148, 8000},    {"b300", 103, 148, 8000},
      {"gb300", 103, 152, 8000},  {"rtx5090", 120, 170, 1792}, {"gb10", 121, 48, 273}};
  for (const Row& row : expected) {
    const DeviceInfo device = device_info(row.name);
    EXPECT_EQ(device.name, row.name);
    EXPECT_EQ(device.kind, DeviceKind::kCuda);
    EXPECT_EQ(device.compute_capability, row.compute_capability) << row.name;
    EXPECT_EQ(device.num_sms, row.num_sms) << row.name;
    EXPECT_EQ(device.memory_bandwidth, row.gigabytes_per_second * 1e9) << row.name;
  }
}

TEST(DeviceTable, every_supported_compute_capability_has_a_device_and_nominal_ones) {
  for (int32_t sm : {75, 80, 86, 89, 90, 100, 103, 120, 121}) {
    bool found = false;
    for (const std::string& name : known_device_names())
      found |= name.find("sm") == std::string::npos && device_info(name).compute_capability == sm;
    EXPECT_TRUE(found) << sm;
    for (const char* prefix : {"sm", "emulated-sm"}) {
      const DeviceInfo device = device_info(concat(prefix, sm));
      EXPECT_EQ(device.name, concat(prefix, sm));
      EXPECT_EQ(device.compute_capability, sm);
      EXPECT_GT(device.num_sms, 0);
      EXPECT_GT(device.memory_bytes, 0);
    }
  }
}

TEST(DeviceTable, every_known_name_is_found_once_and_in_any_case) {
  std::set<std::string> names;
  for (const std::string& name : known_device_names()) {
    EXPECT_TRUE(names.insert(name).second) << name;
    std::string upper = name;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(device_info(upper).name, name);
  }
}

TEST(DeviceTable, cpu_classes_carry_their_level) {
  const std::pair<const char*, CpuIsa> expected[] = {{"cpu-baseline", CpuIsa::kBaseline},
                                                     {"cpu-avx2", CpuIsa::kAvx2},
                                                     {"cpu-avx512", CpuIsa::kAvx512},
                                                     {"cpu-avx512-bf16", CpuIsa::kAvx512Bf16},
                                                     {"cpu-amx-bf16", CpuIsa::kAmxBf16}};
  for (const auto& [name, isa] : expected) {
    const DeviceInfo device = device_info(name);
    EXPECT_EQ(device.kind, DeviceKind::kCpu);
    EXPECT_EQ(device.isa, isa);
    EXPECT_GT(device.num_cores, 0);
    EXPECT_GT(device.l2_bytes, device.l1_bytes);
    EXPECT_GT(device.l3_bytes, device.l2_bytes);
  }
}

TEST(DeviceTable, an_unknown_name_lists_the_known_ones) {
  for (const char* wanted : {"", "h1000", "sm70", "sm", "emulated-", "cpu-"}) {
    try {
      device_info(wanted);
      ADD_FAILURE() << wanted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      const std::string text = error.what();
      EXPECT_NE(text.find(concat("device is \"", wanted, "\"")), std::string::npos);
      for (const std::string& name : known_device_names())
        EXPECT_NE(text.find(name), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace rapt
