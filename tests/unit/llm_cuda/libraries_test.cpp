// What a user without one of the libraries is told, and products through the stand-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "llm/cuda/cublas_lt.hpp"
#include "llm/cuda/nvrtc.hpp"
#include "unit/llm_cuda/emulated_gpu.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Act>
std::string missing_library(const Act& act) {
  try {
    act();
  } catch (const rapt::Error& error) {
    EXPECT_EQ(error.code(), rapt::ErrorCode::kMissingLibrary);
    return error.what();
  }
  ADD_FAILURE() << "nothing is missing";
  return {};
}

TEST(GpuLibraries, a_missing_one_is_named_with_what_needs_it_and_the_remedy) {
  setenv("RAPT_CUBLASLT", "/nowhere/libcublasLt.so", 1);
  EXPECT_THAT(missing_library([] { cuda::lt::Library(); }),
              AllOf(HasSubstr("/nowhere/libcublasLt.so"), HasSubstr("products of dense layers"),
                    HasSubstr("RAPT_CUBLASLT"), HasSubstr("--dense host")));
  setenv("RAPT_NVRTC", "/nowhere/libnvrtc.so", 1);
  EXPECT_THAT(missing_library([] { cuda::compile("", 80); }),
              AllOf(HasSubstr("/nowhere/libnvrtc.so"), HasSubstr("element-wise kernels"),
                    HasSubstr("RAPT_NVRTC"), HasSubstr("--dense host")));
  setenv("RAPT_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  EXPECT_THAT(missing_library([] { cuda::Driver(); }),
              AllOf(HasSubstr("/nowhere/libcuda.so.1"), HasSubstr("NVIDIA's driver")));
}

TEST(GpuLibraries, another_library_lacks_the_functions) {
  setenv("RAPT_CUBLASLT", EMULATOR, 1);
  EXPECT_THAT(missing_library([] { cuda::lt::Library(); }),
              AllOf(HasSubstr("has no cublasLtGetStatusString"), HasSubstr("--dense host")));
}

TEST(GpuLibraries, text_that_does_not_compile_comes_with_the_compilers_words) {
  test::use_emulated_gpu();
  try {
    cuda::compile("#include \"ptx/threads.cuh\"\nno_such_type x;\n", 80);
    FAIL();
  } catch (const rapt::Error& error) {
    EXPECT_EQ(error.code(), rapt::ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("no_such_type"));
  }
}

// Against fp64, with one row and several, in a result that begins as NaN, and added to it.
TEST(CublasLt, multiplies_rows_by_the_transposed_weight) {
  test::use_emulated_gpu();
  rapt::Context context({.device = test::kEmulatedGpu});
  const cuda::Context gpu(test::kOrdinal);
  const cuda::CurrentContext current(gpu);
  cuda::CublasLt products(context);
  constexpr int64_t kRows = 37, kCols = 50;
  const std::vector<float> weight = test::noise(kRows * kCols, 1);
  const rapt::DeviceBuffer weights = test::to_device(context, weight);
  for (const int64_t num_rows : {1, 6, 1}) {
    const std::vector<float> x = test::noise(static_cast<size_t>(num_rows * kCols), 2);
    const rapt::DeviceBuffer inputs = test::to_device(context, x);
    const rapt::DeviceBuffer outputs(context, static_cast<size_t>(num_rows * kRows) * 4);
    for (const int times : {1, 2}) {
      products.multiply(static_cast<const float*>(weights.data()), kRows, kCols,
                        static_cast<const float*>(inputs.data()), num_rows,
                        static_cast<float*>(outputs.data()), /*accumulate=*/times > 1);
      const std::vector<float> out = test::to_host<float>(outputs);
      for (int64_t t = 0; t < num_rows; ++t) {
        for (int64_t r = 0; r < kRows; ++r) {
          double sum = 0;
          for (int64_t k = 0; k < kCols; ++k)
            sum += static_cast<double>(weight[static_cast<size_t>(r * kCols + k)]) *
                   x[static_cast<size_t>(t * kCols + k)];
          ASSERT_NEAR(out[static_cast<size_t>(t * kRows + r)], times * sum, 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace llm
