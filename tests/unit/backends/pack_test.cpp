// Packs of the backends' kernels. The compiler is a fake one that takes no time, but for the last
// test.
#include "rapt/pack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "backends/cuda/cuda_gpu.hpp"
#include "backends/flash_attention/kernel_texts.hpp"
#include "unit/jit/scratch.hpp"

namespace rapt {
namespace {

using jit::ScratchFolder;
using test::error_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

AttentionSpec spec_of(int32_t num_query_heads, int32_t head_dim) {
  return {.num_query_heads = num_query_heads, .num_kv_heads = 4, .head_dim_qk = head_dim};
}

// A store that has the pack and nothing else.
jit::KernelStore store_of(const std::filesystem::path& pack) {
  jit::StoreOptions options;
  options.packs = {pack};
  options.cache_folder.clear();
  options.make_compiler = []() -> std::unique_ptr<jit::Compiler> {
    fail(ErrorCode::kMissingLibrary, "no compiler here");
  };
  return jit::KernelStore(options);
}

class PackOfSpecs : public testing::Test {
 protected:
  PackOfSpecs() { setenv("RAPT_NVRTC", FAKE_LIBNVRTC, 1); }
  ~PackOfSpecs() override {
    for (const char* name : {"RAPT_NVRTC", "FAKE_NVRTC_SPILLS", "FAKE_NVRTC_FAILS"}) unsetenv(name);
  }

  std::vector<PackedKernel> build(std::vector<AttentionSpec> specs,
                                  std::vector<std::string> architectures) const {
    return build_pack(
        path_,
        {.specs = std::move(specs), .architectures = std::move(architectures), .num_threads = 2});
  }

  const ScratchFolder scratch_;
  const std::string path_ = scratch_ / "some.rpk";
};

// What a device of the architecture asks for at run time is in the pack. Head dims 128 and 256 have
// other tiles where shared memory is small.
TEST_F(PackOfSpecs, has_what_devices_of_the_architecture_ask_for) {
  std::vector<AttentionSpec> specs;
  for (const int32_t head_dim : {64, 96, 128, 192, 256}) {
    specs.push_back(spec_of(4, head_dim));
    specs.push_back(spec_of(28, head_dim));
    specs.back().page_size = 0;
    specs.back().dtype = DType::kFloat16;
  }
  const std::map<std::string, std::vector<const char*>> devices = {
      {"80", {"a100", "rtx3090"}}, {"86", {"a10"}},
      {"89", {"rtx4090"}},         {"90", {"h200"}},
      {"sm_90a", {"h100"}},        {"100a", {"b200"}},
      {"100", {"b200", "b300"}},   {"100f", {"b300"}},
      {"103a", {"gb300"}},         {"120", {"rtx5090", "gb10"}},
      {"120a", {"rtxpro6000"}},    {"121", {"gb10"}}};
  for (const auto& [architecture, names] : devices) {
    SCOPED_TRACE(architecture);
    build(specs, {architecture});
    jit::KernelStore store = store_of(path_);
    for (const char* name : names)
      for (const AttentionSpec& spec : specs) {
        const DeviceInfo device = device_info(name);
        for (const KernelText& text : flash_attention::texts_for(spec, device))
          EXPECT_NO_THROW(store.get(text.key, text.source)) << name << ": " << text.key.text();
        const KernelText merging =
            merge_states_text(spec.dtype, spec.dtype, architecture_for(device.compute_capability));
        EXPECT_NO_THROW(store.get(merging.key, merging.source)) << name;
      }
  }
}

TEST_F(PackOfSpecs, an_architecture_brings_only_its_own) {
  const std::vector<AttentionSpec> specs{spec_of(4, 128)};
  for (const PackedKernel& kernel : build(specs, {"80"}))
    EXPECT_THAT(kernel.key, HasSubstr(" sm_80"));
  // 8.0 has shared memory for larger tiles than 8.6.
  EXPECT_GT(build(specs, {"80"}).size(), build(specs, {"86"}).size());
  const size_t one = build(specs, {"90"}).size();
  EXPECT_EQ(one,
            4u + 4u);  // attention of four tiles; merge_rows, merge_states, write_kv, rope_write_kv
  EXPECT_EQ(build(specs, {"90", "90a", "sm_90"}).size(), one);
  EXPECT_EQ(build(specs, {"90", "89"}).size(), 2 * one);
}

// The group alone matters, not the heads; neither do windows, scales, and what is returned.
TEST_F(PackOfSpecs, specs_that_are_compiled_alike_are_compiled_once) {
  std::vector<AttentionSpec> specs(6, spec_of(32, 128));
  specs[1].num_query_heads = 8, specs[1].num_kv_heads = 1;
  specs[2].window = sliding_window(4096);
  specs[3].scale = 0.5f;
  specs[4].needs_lse = specs[4].batch_invariant = true;
  specs[5].causal = false;
  EXPECT_EQ(build(specs, {"90"}).size(), build({specs[0]}, {"90"}).size());
}

TEST_F(PackOfSpecs, the_list_says_what_a_kernel_takes) {
  const std::vector<PackedKernel> built = build({spec_of(32, 128)}, {"90"});
  const std::vector<PackedKernel> listed = list_pack(path_);
  ASSERT_EQ(listed.size(), built.size());
  for (size_t i = 0; i < listed.size(); i++) {
    const PackedKernel& kernel = listed[i];
    EXPECT_EQ(kernel.key, built[i].key);
    EXPECT_TRUE(i == 0 || listed[i - 1].key < kernel.key);
    EXPECT_EQ(kernel.num_registers, 168);
    EXPECT_EQ(kernel.static_shared_bytes, 128);
    EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes + kernel.stack_bytes, 0);
    EXPECT_GT(kernel.image_bytes, 0);
    EXPECT_GT(kernel.packed_bytes, 0);
    EXPECT_EQ(kernel.hash.size(), 32u);
    EXPECT_THAT(kernel.messages, IsEmpty());
    // At least two rows of K and V at once, 2 bytes an element, where there are any.
    if (kernel.key.starts_with("attention"))
      EXPECT_GT(kernel.dynamic_shared_bytes, 2 * 16 * (128 + 128) * 2);
    else
      EXPECT_EQ(kernel.dynamic_shared_bytes, 0);
  }
}

TEST_F(PackOfSpecs, refuses_with_the_reason) {
  const auto invalid = [&](const PackOptions& options) {
    return error_of(ErrorCode::kInvalidArgument, [&] { build_pack(path_, options); });
  };
  const std::vector<AttentionSpec> specs{spec_of(32, 128)};
  EXPECT_THAT(invalid({.architectures = {"80"}}), HasSubstr("specs is empty"));
  EXPECT_THAT(invalid({.specs = specs}), HasSubstr("architectures is empty"));
  EXPECT_THAT(invalid({.specs = specs, .architectures = {"80"}, .num_threads = -1}),
              HasSubstr("num_threads is -1"));
  EXPECT_THAT(invalid({.specs = specs, .architectures = {"hopper"}}),
              HasSubstr("architecture is \"hopper\""));
  EXPECT_THAT(invalid({.specs = specs, .architectures = {"80", "95"}}),
              AllOf(HasSubstr("architecture is \"95\""), HasSubstr("80, 86, 89, 90")));
  const auto unsupported = [&](int32_t head_dim, const char* architecture) {
    return error_of(ErrorCode::kUnsupported, [&] {
      build({specs[0], spec_of(4, head_dim)}, {architecture});
    });
  };
  EXPECT_THAT(unsupported(512, "90"), AllOf(StartsWith("specs[1] on h100: "), HasSubstr("512")));
  EXPECT_THAT(unsupported(128, "75"), AllOf(StartsWith("specs[0] on t4: "), HasSubstr("7.5")));
  setenv("RAPT_NVRTC", "/nowhere/libnvrtc.so", 1);
  EXPECT_THAT(error_of(ErrorCode::kMissingLibrary, [&] { build(specs, {"90"}); }),
              HasSubstr("/nowhere/libnvrtc.so"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { list_pack(path_); }), HasSubstr(path_));
}

TEST_F(PackOfSpecs, kernels_that_spill_are_named_and_not_packed) {
  setenv("FAKE_NVRTC_SPILLS", "tile_rows=16", 1);
  EXPECT_THAT(error_of(ErrorCode::kInternal,
                       [&] {
                         build({spec_of(32, 128)}, {"80", "90"});
                       }),
              AllOf(HasSubstr("attention_sm80 sm_80 "), HasSubstr("attention_sm80 sm_90 "),
                    HasSubstr("tile_rows=16: spills: 24 bytes stored, 24 bytes loaded")));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

#if HAS_TOOLKIT
TEST(RealPack, serves_without_a_compiler) {
  const ScratchFolder scratch;
  const std::string path = scratch / "real.rpk";
  const AttentionSpec spec = spec_of(4, 16);
  const std::vector<PackedKernel> kernels =
      build_pack(path, {.specs = {spec}, .architectures = {"90"}, .num_threads = 2});
  EXPECT_EQ(kernels.size(), 8u);
  for (const PackedKernel& kernel : kernels) {
    EXPECT_GT(kernel.num_registers, 8) << kernel.key;
    EXPECT_LE(kernel.num_registers, 255);
    EXPECT_LT(kernel.packed_bytes, kernel.image_bytes);
    EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0);
  }
  jit::KernelStore store = store_of(path);
  for (const KernelText& text : flash_attention::texts_for(spec, device_info("h200"))) {
    const auto kernel = store.get(text.key, text.source);
    EXPECT_THAT(kernel->image, StartsWith("\x7f"
                                          "ELF"));
    EXPECT_THAT(kernel->image, HasSubstr(".text." + text.source.function));
  }
  EXPECT_EQ(store.counters().pack_hits, 7);
  EXPECT_EQ(store.counters().builds, 0);
}
#endif

}  // namespace
}  // namespace rapt
