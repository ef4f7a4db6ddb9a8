// Over all devices of the table and all head dims: what a kernel must keep, wherever it runs.
#include "backends/flash_attention/kernel_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace rapt::flash_attention {
namespace {

AttentionSpec spec_of(int32_t head_dim_qk, int32_t head_dim_vo) {
  AttentionSpec spec;
  spec.num_query_heads = 8, spec.num_kv_heads = 2;
  spec.head_dim_qk = head_dim_qk, spec.head_dim_vo = head_dim_vo;
  return spec;
}

// body(spec, device, choice) for each.
template <typename Body>
void for_each_choice(const Body& body) {
  for (const std::string& name : known_device_names()) {
    const DeviceInfo device = device_info(name);
    if (device.compute_capability < 80) continue;
    for (int32_t qk = 8; qk <= 256; qk += 8)
      for (int32_t vo = 8; vo <= 256; vo += 8) {
        const AttentionSpec spec = spec_of(qk, vo);
        for (const KernelChoice& choice : choose_kernels(spec, device)) {
          body(spec, device, choice);
          if (testing::Test::HasFailure()) {
            ADD_FAILURE() << name << ", head dims " << qk << " and " << vo;
            return;
          }
        }
      }
  }
}

TEST(KernelChoice, every_tile_fits_its_device) {
  for_each_choice([](const AttentionSpec&, const DeviceInfo& device, const KernelChoice& choice) {
    EXPECT_LE(choice.variant.shared_bytes(), device.shared_memory_bytes_per_block);
    // An SM has 1 KB more than a block may have, and keeps 1 KB of every block's.
    EXPECT_GE(choice.blocks_per_sm, 1);
    EXPECT_LE(choice.blocks_per_sm * (choice.variant.shared_bytes() + 1024),
              device.shared_memory_bytes_per_block + 1024);
    EXPECT_LE(choice.blocks_per_sm * choice.variant.num_threads() * 256, 65536);
  });
}

// The static assertions of the kernel's text.
TEST(KernelChoice, tiles_are_what_the_kernel_takes) {
  for_each_choice([](const AttentionSpec&, const DeviceInfo&, const KernelChoice& choice) {
    const device::AttentionVariant& v = choice.variant;
    EXPECT_EQ(v.tile_rows % (16 * v.num_warps), 0);
    EXPECT_EQ(v.tile_keys % 16, 0);
    EXPECT_LE(v.tile_keys, v.num_threads());
    EXPECT_TRUE(v.stages == 1 || v.stages == 2);
  });
}

// A thread has 255 registers: its share of O, and of S twice, once as weights, leave some for
// addresses.
TEST(KernelChoice, sums_leave_registers_free) {
  for_each_choice([](const AttentionSpec&, const DeviceInfo&, const KernelChoice& choice) {
    const device::AttentionVariant& v = choice.variant;
    const int rows = v.tile_rows / v.num_warps;
    const int out = rows * ((v.head_dim_vo + 15) / 16 * 16) / 32, scores = rows * v.tile_keys / 32;
    EXPECT_LE(out + scores, 192);
  });
}

TEST(KernelChoice, tiles_grow_from_decoding_to_prefill) {
  for_each_choice([](const AttentionSpec& spec, const DeviceInfo& device, const KernelChoice&) {
    const auto choices = choose_kernels(spec, device);
    EXPECT_EQ(choices[0].variant.tile_rows, 16);
    EXPECT_EQ(choices[1].variant.tile_rows, 32);
    EXPECT_EQ(choices[2].variant.tile_rows, 64);
    EXPECT_GE(choices[3].variant.tile_rows, 64);
  });
}

TEST(KernelChoice, options_of_the_spec_are_the_variants) {
  const DeviceInfo h200 = device_info("h200");
  const auto variant = [&](auto change) {
    AttentionSpec spec = spec_of(64, 0);
    change(spec);
    return choose_kernels(spec, h200).back().variant;
  };
  using Spec = AttentionSpec;
  const device::AttentionVariant plain = variant([](Spec&) {});
  EXPECT_EQ(plain.head_dim_vo, 64);
  EXPECT_EQ(plain.group, 4);
  EXPECT_EQ(plain.page_size, 16);
  EXPECT_FALSE(plain.scores_in_advance || plain.softcap || plain.alibi || plain.custom_mask ||
               plain.sinks);
  EXPECT_TRUE(variant([](Spec& s) { s.sinks = true; }).sinks);
  EXPECT_TRUE(variant([](Spec& s) { s.custom_mask = true; }).custom_mask);
  EXPECT_EQ(variant([](Spec& s) { s.page_size = 0; }).page_size, 0);
  for (const auto& v :
       {variant([](Spec& s) { s.softcap = 30; }), variant([](Spec& s) { s.alibi = true; }),
        variant([](Spec& s) { s.scale = 0.0f; }), variant([](Spec& s) { s.scale = -1.0f; })})
    EXPECT_TRUE(v.scores_in_advance);
  EXPECT_TRUE(variant([](Spec& s) { s.softcap = 30; }).softcap);
  EXPECT_TRUE(variant([](Spec& s) { s.alibi = true; }).alibi);
}

// Figures of docs/notes/2026-11-30-generation-2.md.
TEST(KernelChoice, head_dims_have_the_tiles_that_were_fastest_on_the_h200) {
  struct {
    int head_dim, keys, warps;
  } const fastest[] = {{64, 128, 4}, {96, 64, 4},   {112, 64, 4},
                       {128, 64, 4}, {192, 128, 8}, {256, 128, 8}};
  for (const auto& [head_dim, keys, warps] : fastest) {
    const device::AttentionVariant v =
        choose_kernels(spec_of(head_dim, 0), device_info("h200")).back().variant;
    EXPECT_EQ(v.tile_rows, 128) << head_dim;
    EXPECT_EQ(v.tile_keys, keys) << head_dim;
    EXPECT_EQ(v.num_warps, warps) << head_dim;
  }
}

}  // namespace
}  // namespace rapt::flash_attention
