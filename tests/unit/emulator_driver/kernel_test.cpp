// Kernels compiled and launched on an emulated device, through src/jit and src/launch.
#include "launch/kernel.hpp"

#include "launch/tensor_map.hpp"
#include "unit/emulator_driver/emulated.hpp"

namespace rapt::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class EmulatedKernel : public EmulatedDevice {
 protected:
  static jit::KernelSource scaled(const std::string& expression = "scale * x") {
    return source_of(
        "scaled",
        "extern \"C\" GLOBAL void LAUNCH_BOUNDS(32)\nscaled(float* out, const float* in, "
        "u8 n, const GRID_CONSTANT double scale) {\n"
        "  const int i = block_index_x() * 32 + thread_index();\n"
        "  if (i >= n) return;\n"
        "  const float x = load_global_f32(in + i);\n"
        "  store_global_f32(out + i, " +
            expression + ");\n}");
  }
  // Each thread reads what another wrote, `between` these.
  static jit::KernelSource turned(const std::string& between) {
    return source_of("turned",
                     "extern \"C\" GLOBAL void turned(int* data) {\n"
                     "  int* const shared = shared_base<int>();\n"
                     "  shared[thread_index()] = data[thread_index()];\n  " +
                         between + "\n  data[thread_index()] = shared[63 - thread_index()];\n}");
  }
  std::string failure_of(const Kernel& kernel, const LaunchShape& shape, DevicePointer argument) {
    return error_of(ErrorCode::kDevice, [&] { launch(kernel, shape, {}, argument); });
  }
};

TEST_F(EmulatedKernel, computes_and_says_what_it_takes) {
  const Kernel& kernel = load(scaled());
  EXPECT_THAT(kernel.parameter_bytes(), ElementsAre(8, 8, 1, 8));
  EXPECT_EQ(kernel.max_threads_per_block(), 1024);
  std::vector<float> in(40);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(i);
  const DeviceBuffer from = on_device(in), to(context_, 160);
  launch(kernel, {.grid = {2}, .block = {32}}, {}, to.address(), from.address(), uint8_t{39}, 2.5);
  const std::vector<float> out = on_host<float>(to);
  for (size_t i = 0; i < 39; i++) EXPECT_EQ(out[i], 2.5F * static_cast<float>(i));
  EXPECT_TRUE(out[39] != out[39]);
  size_t offset = 0, bytes = 0;
  // Offsets are those of a struct of the parameters.
  FunctionHandle function = nullptr;
  const Module module(context_, store_.get(key_of("scaled"), scaled())->image.data(), 0);
  driver().check(driver().cuModuleGetFunction(&function, module.handle(), "scaled"), "");
  EXPECT_EQ(driver().cuFuncGetParamInfo(function, 3, &offset, &bytes), kSuccess);
  EXPECT_EQ(offset, 24U);
}

TEST_F(EmulatedKernel, arguments_of_other_sizes_are_refused) {
  const Kernel& kernel = load(scaled());
  const auto refusal = [&](const auto&... arguments) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { launch(kernel, {.block = {32}}, {}, arguments...); });
  };
  EXPECT_THAT(refusal(DevicePointer{0}, DevicePointer{0}, 39, 2.5),
              HasSubstr("argument 2 has 4 bytes, the parameter 1"));
  EXPECT_THAT(refusal(DevicePointer{0}), HasSubstr("1 arguments, it takes 4"));
}

TEST_F(EmulatedKernel, a_missing_barrier_is_told_and_the_device_goes_on) {
  std::vector<int> data(64), reversed(64);
  for (int i = 0; i < 64; i++) data[i] = i, reversed[63 - i] = i;
  const LaunchShape shape{.block = {64}, .shared_bytes = 256};
  const Kernel& wrong = load(turned(""), 256);
  const DeviceBuffer buffer = on_device(data);
  EXPECT_THAT(failure_of(wrong, shape, buffer.address()),
              AllOf(HasSubstr("cuLaunchKernelEx of turned: CUDA_ERROR_LAUNCH_FAILED (719), block "
                              "(0, 0, 0) warp"),
                    HasSubstr("reads byte 252 of shared memory, which was never written")));
  // Another kernel of the same name, in another module.
  jit::LoadedKernels others(context_, store_);
  const Kernel& right =
      others.get(key_of("turned").flag("right", true), turned("sync_block();"), 256);
  const DeviceBuffer fresh = on_device(data);
  launch(right, shape, {}, fresh.address());
  EXPECT_EQ(on_host<int>(fresh), reversed);
  EXPECT_THAT(failure_of(wrong, shape, buffer.address()), HasSubstr("LAUNCH_FAILED"));
}

TEST_F(EmulatedKernel, out_of_bounds_is_told_with_the_allocation_and_the_line) {
  const Kernel& kernel = load(turned("sync_block();"), 256);
  const DeviceBuffer small(context_, 62 * sizeof(int));
  EXPECT_THAT(
      failure_of(kernel, {.block = {64}, .shared_bytes = 256}, small.address()),
      AllOf(HasSubstr("0 bytes past the end of allocation 0 (248 bytes)"), HasSubstr("lane 30")));
  // Memory of the host, and memory that is gone.
  int local[64] = {};
  EXPECT_THAT(failure_of(kernel, {.block = {64}, .shared_bytes = 256},
                         reinterpret_cast<DevicePointer>(local)),
              AllOf(HasSubstr("loads 4 bytes"),
                    HasSubstr("not inside its stack, shared memory or an allocation")));
  DevicePointer gone = 0;
  {
    const DeviceBuffer ended(context_, 256);
    gone = ended.address();
  }
  EXPECT_THAT(failure_of(kernel, {.block = {64}, .shared_bytes = 256}, gone), HasSubstr("719"));
  // Shared memory that was not asked for.
  const DeviceBuffer data = on_device(std::vector<int>(64));
  EXPECT_THAT(failure_of(kernel, {.block = {64}, .shared_bytes = 252}, data.address()),
              HasSubstr("byte 252 is outside the 252 bytes of shared memory"));
}

TEST_F(EmulatedKernel, what_does_not_compile_has_the_compilers_words) {
  const std::string text = error_of(ErrorCode::kInternal, [&] { load(scaled("undefined_thing")); });
  EXPECT_THAT(text, AllOf(HasSubstr("kernel scaled sm_80 does not compile"),
                          HasSubstr("NVRTC_ERROR_COMPILATION"), HasSubstr("kernel.cu:"),
                          HasSubstr("undefined_thing"), HasSubstr("ended with exit code 1")));
}

TEST_F(EmulatedKernel, host_and_device_must_agree) {
  jit::KernelSource source = scaled();
  source.agreements = {{"sizeof(Quad)", 24}};
  EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { load(source); }),
              HasSubstr("host and device disagree: the host has 24"));
}

TEST_F(EmulatedKernel, is_compiled_once_for_all_processes) {
  load(scaled());
  EXPECT_EQ(store_.counters().builds, 1);
  EXPECT_EQ(store_.counters().failed_writes, 0);
  jit::KernelStore later(store_options(scratch_ / "cache"));
  jit::LoadedKernels kernels(context_, later);
  const Kernel& kernel = kernels.get(key_of("scaled"), scaled(), 0);
  EXPECT_EQ(later.counters().builds, 0);
  EXPECT_EQ(later.counters().disk_hits, 1);
  const DeviceBuffer from = on_device(std::vector<float>{4}), to(context_, 4);
  launch(kernel, {.block = {32}}, {}, to.address(), from.address(), uint8_t{1}, 0.5);
  EXPECT_THAT(on_host<float>(to), ElementsAre(2));
}

TEST_F(EmulatedKernel, without_a_compiler_it_says_which_to_install) {
  const Variable path("PATH", (scratch_ / "nothing").string());
  EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { load(scaled()); }),
              AllOf(HasSubstr("PATH has no c++, g++ or clang++"), HasSubstr("RAPT_CXX")));
  const Variable cxx("RAPT_CXX", "/nowhere/g++");
  EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { load(scaled()); }),
              HasSubstr("RAPT_CXX names /nowhere/g++"));
}

TEST_F(EmulatedKernel, another_compiler_has_another_identity) {
  const std::vector<std::string> library = {emulator_library()};
  const std::string usual = jit::Nvrtc(library).identity();
  EXPECT_THAT(usual, testing::StartsWith("nvrtc 0."));
  EXPECT_EQ(jit::Nvrtc(library).identity(), usual);
  const std::filesystem::path other = scratch_ / "c++";
  jit::put(other, "#!/bin/sh\necho c++ of another make\n");
  std::filesystem::permissions(other, std::filesystem::perms(0755));
  const Variable cxx("RAPT_CXX", other.string());
  EXPECT_NE(jit::Nvrtc(library).identity(), usual);
  EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { load(scaled()); }),
              HasSubstr("left no library"));
}

TEST_F(EmulatedKernel, images_of_others_are_refused) {
  const auto refusal = [&](const std::string& image) {
    return error_of(ErrorCode::kDevice, [&] { Module(context_, image.data(), image.size()); });
  };
  EXPECT_THAT(refusal("\177ELF and so on, a cubin"), HasSubstr("CUDA_ERROR_INVALID_IMAGE (200)"));
  const jit::KernelKey newer("scaled", {90, 'a'});
  std::string image = store_.get(newer, scaled())->image;
  EXPECT_THAT(refusal(image), AllOf(HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU (209)"),
                                    HasSubstr("for sm_90a, the device is an sm_80")));
  image[8] ^= 1;  // of the interface's version
  EXPECT_THAT(refusal(image), HasSubstr("another version of the emulator"));
}

TEST_F(EmulatedKernel, what_it_does_not_have_is_refused) {
  const Kernel& kernel = load(turned("sync_block();"), 256);
  const DeviceBuffer data = on_device(std::vector<int>(64));
  EXPECT_THAT(failure_of(kernel, {.block = {32, 2}, .shared_bytes = 256}, data.address()),
              AllOf(HasSubstr("CUDA_ERROR_NOT_SUPPORTED (801)"), HasSubstr("one-dimensional")));
  EXPECT_THAT(error_of(ErrorCode::kDevice,
                       [&] {
                         const Module module(
                             context_,
                             store_.get(key_of("turned"), turned("sync_block();"))->image.data(),
                             0);
                         Kernel(module, "untold", 0);
                       }),
              AllOf(HasSubstr("CUDA_ERROR_NOT_FOUND (500)"), HasSubstr("no kernel untold")));
}

class EmulatedHopper : public EmulatedDevice {
 protected:
  EmulatedHopper() : EmulatedDevice(90) {}
};

TEST_F(EmulatedHopper, clusters_are_refused_and_overlap_is_allowed) {
  const jit::KernelSource source =
      source_of("count", "extern \"C\" GLOBAL void count(u32* n) { atomic_add(n, 1); }");
  const Kernel& kernel = load({"ptx/atomic.cuh", source.function, source.entry, {}});
  const DeviceBuffer n = on_device(std::vector<uint32_t>{0});
  EXPECT_THAT(error_of(ErrorCode::kDevice,
                       [&] { launch(kernel, {.grid = {2}, .cluster = {2}}, {}, n.address()); }),
              AllOf(HasSubstr("CUDA_ERROR_NOT_SUPPORTED"), HasSubstr("clusters")));
  launch(kernel, {.grid = {2, 3, 4}, .block = {40}, .overlaps_previous = true}, {}, n.address());
  EXPECT_THAT(on_host<uint32_t>(n), ElementsAre(2 * 3 * 4 * 40));
}

TEST_F(EmulatedHopper, tensors_are_copied_by_maps) {
  // Rows of 16 floats, of which those from 6 on do not exist.
  std::vector<jit::HeaderText> headers(jit::embedded_headers().begin(),
                                       jit::embedded_headers().end());
  headers.push_back({"box.cuh",
                     "#pragma once\n#include \"ptx/barrier.cuh\"\n#include \"ptx/copy.cuh\"\n"
                     "#include \"ptx/tensor.cuh\"\n#include \"ptx/threads.cuh\"\n"});
  const jit::KernelSource source{
      "box.cuh",
      "box",
      "struct Shared { u8 box[512]; u64 barrier; };\n"
      "extern \"C\" GLOBAL void box(u32 row, GRID_CONSTANT const TensorMap map, u32* out) {\n"
      "  Shared& shared = *shared_base<Shared>();\n"
      "  const u32 barrier = shared_address(&shared.barrier), box = shared_address(shared.box);\n"
      "  if (thread_index() == 0) {\n"
      "    barrier_init(barrier, 1);\n"
      "    fence_barrier_init();\n"
      "    const int at[5] = {0, static_cast<int>(row), 0, 0, 0};\n"
      "    barrier_expect(barrier, 512);\n"
      "    load_tensor(box, map, barrier, at, kEvictFirst);\n"
      "  }\n"
      "  sync_block();\n"
      "  barrier_wait(barrier, 0);\n"
      "  out[thread_index()] = load_shared_4(box + 4 * thread_index());\n"
      "}",
      {{"sizeof(TensorMap)", sizeof(TensorMap)}},
      headers};
  const Kernel& kernel = load(source, 520);
  EXPECT_THAT(kernel.parameter_bytes(), ElementsAre(4, 128, 8));
  std::vector<float> values(6 * 16);
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i + 1);
  const DeviceBuffer tensor = on_device(values), out(context_, 512);
  TensorMapShape shape;
  shape.address = tensor.address();
  shape.dtype = DType::kFloat32;
  shape.rank = 5;
  shape.sizes = {16, 6, 1, 1, 1};
  shape.stride_bytes = {0, 64, 384, 384, 384};
  shape.box = {16, 8, 1, 1, 1};
  const TensorMap map = encode(driver(), shape);
  launch(kernel, {.block = {128}, .shared_bytes = 520}, {}, uint32_t{2}, map, out.address());
  const std::vector<float> box = on_host<float>(out);
  for (size_t i = 0; i < box.size(); i++)
    EXPECT_EQ(box[i], i < 64 ? static_cast<float>(i + 33) : 0) << i;
  shape.sizes[1] = 7;  // one more than the allocation has
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { encode(driver(), shape); }),
              AllOf(HasSubstr("CUDA_ERROR_INVALID_VALUE"), HasSubstr("which is no allocation")));
  shape.swizzle = TensorMapSwizzle::k64Bytes;
  shape.sizes[1] = 6;
  EXPECT_NO_THROW(encode(driver(), shape));
}

class EmulatedTuring : public EmulatedDevice {
 protected:
  EmulatedTuring() : EmulatedDevice(75) {}
};

TEST_F(EmulatedTuring, instructions_of_later_devices_are_told) {
  const jit::KernelSource source =
      source_of("copy",
                "extern \"C\" GLOBAL void copy(const u8* from) {\n"
                "  copy_async_16(shared_address(shared_base<u8>()), from, 0);\n"
                "  copy_async_wait<0>();\n}");
  const Kernel& kernel = load(source, 16);
  const DeviceBuffer from(context_, 16);
  EXPECT_THAT(
      error_of(ErrorCode::kDevice,
               [&] { launch(kernel, {.block = {32}, .shared_bytes = 16}, {}, from.address()); }),
      HasSubstr("cp.async at kernel.cu:7: is no instruction of sm_75"));
}

}  // namespace
}  // namespace rapt::cuda
