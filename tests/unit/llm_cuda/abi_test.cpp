// What llm/cuda declares of the GPU's libraries: of libcuda, against Rapt's own declarations, which
// are compared with the toolkit's; of cuBLASLt, against the toolkit's header where there is one.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <type_traits>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include "launch/driver.hpp"
#include "llm/cuda/cublas_lt_abi.hpp"
#include "llm/cuda/driver.hpp"
#include "rapt/error.hpp"

namespace llm::cuda {
namespace {

// Two types travel alike: both addresses, or numbers of one size.
template <typename A, typename B>
constexpr bool same_value = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename A, typename B>
struct SameCall : std::false_type {};
template <typename A, typename... As, typename B, typename... Bs>
struct SameCall<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) != sizeof...(Bs))
      return false;
    else
      return same_value<A, B> && (same_value<As, Bs> && ...);
  }();
};

#define SAME_CALL(name) \
  static_assert(SameCall<decltype(Driver::name), decltype(rapt::cuda::Driver::name)>::value)
SAME_CALL(cuGetErrorName);
SAME_CALL(cuGetErrorString);
SAME_CALL(cuDeviceGet);
SAME_CALL(cuDevicePrimaryCtxRetain);
SAME_CALL(cuDevicePrimaryCtxRelease_v2);
SAME_CALL(cuCtxPushCurrent_v2);
SAME_CALL(cuCtxPopCurrent_v2);
SAME_CALL(cuModuleLoadData);
SAME_CALL(cuModuleUnload);
SAME_CALL(cuModuleGetFunction);
SAME_CALL(cuLaunchKernelEx);
SAME_CALL(cuMemHostAlloc);
SAME_CALL(cuMemFreeHost);
SAME_CALL(cuMemcpyHtoDAsync_v2);
SAME_CALL(cuMemcpyDtoHAsync_v2);
SAME_CALL(cuStreamSynchronize);
#undef SAME_CALL

using Theirs = rapt::cuda::LaunchConfig;
static_assert(sizeof(LaunchConfig) == sizeof(Theirs));
static_assert(offsetof(LaunchConfig, grid_z) == offsetof(Theirs, grid_z));
static_assert(offsetof(LaunchConfig, block_z) == offsetof(Theirs, block_z));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(Theirs, shared_bytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(Theirs, stream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(Theirs, attributes));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(Theirs, num_attributes));

#if __has_include(<cublasLt.h>)
using namespace lt;

#define SAME_CALL(name) static_assert(SameCall<decltype(Library::name), decltype(&::name)>::value)
SAME_CALL(cublasLtGetStatusString);
SAME_CALL(cublasLtCreate);
SAME_CALL(cublasLtDestroy);
SAME_CALL(cublasLtMatmulDescCreate);
SAME_CALL(cublasLtMatmulDescDestroy);
SAME_CALL(cublasLtMatmulDescSetAttribute);
SAME_CALL(cublasLtMatrixLayoutCreate);
SAME_CALL(cublasLtMatrixLayoutDestroy);
SAME_CALL(cublasLtMatmulPreferenceCreate);
SAME_CALL(cublasLtMatmulPreferenceDestroy);
SAME_CALL(cublasLtMatmulPreferenceSetAttribute);
SAME_CALL(cublasLtMatmulAlgoGetHeuristic);
SAME_CALL(cublasLtMatmul);
#undef SAME_CALL

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}
static_assert(same(kSuccess, CUBLAS_STATUS_SUCCESS));
static_assert(same(kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED));
static_assert(same(kInvalidValue, CUBLAS_STATUS_INVALID_VALUE));
static_assert(same(ComputeType::k32F, CUBLAS_COMPUTE_32F));
static_assert(same(DataType::kR32F, CUDA_R_32F));
static_assert(same(Operation::kN, CUBLAS_OP_N) && same(Operation::kT, CUBLAS_OP_T));
static_assert(same(MatmulDescAttribute::kTransA, CUBLASLT_MATMUL_DESC_TRANSA));
static_assert(same(MatmulDescAttribute::kTransB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(same(PreferenceAttribute::kMaxWorkspaceBytes,
                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

#ifdef CUBLAS_LT_LIBRARY
// What needs no GPU, and what shows that values arrive.
TEST(CublasLtAbi, the_toolkits_library_takes_our_calls) {
  setenv("RAPT_CUBLASLT", CUBLAS_LT_LIBRARY, 1);
  const Library library;
  MatmulDesc desc = nullptr;
  ASSERT_EQ(library.cublasLtMatmulDescCreate(&desc, ComputeType::k32F, DataType::kR32F), kSuccess);
  const Operation transposed = Operation::kT;
  const auto set = [&](size_t bytes) {
    return library.cublasLtMatmulDescSetAttribute(desc, MatmulDescAttribute::kTransA, &transposed,
                                                  bytes);
  };
  EXPECT_EQ(set(sizeof(transposed)), kSuccess);
  EXPECT_EQ(set(1), kInvalidValue);
  EXPECT_EQ(library.cublasLtMatmulDescDestroy(desc), kSuccess);
  MatrixLayout layout = nullptr;
  ASSERT_EQ(library.cublasLtMatrixLayoutCreate(&layout, DataType::kR32F, 64, 5, 64), kSuccess);
  EXPECT_EQ(library.cublasLtMatrixLayoutDestroy(layout), kSuccess);
  Preference preference = nullptr;
  ASSERT_EQ(library.cublasLtMatmulPreferenceCreate(&preference), kSuccess);
  const size_t workspace = 1 << 20;
  EXPECT_EQ(library.cublasLtMatmulPreferenceSetAttribute(
                preference, PreferenceAttribute::kMaxWorkspaceBytes, &workspace, sizeof(workspace)),
            kSuccess);
  EXPECT_EQ(library.cublasLtMatmulPreferenceDestroy(preference), kSuccess);
  EXPECT_THROW(library.check(kInvalidValue, "a call"), rapt::Error);
}
#endif
#endif

}  // namespace
}  // namespace llm::cuda
