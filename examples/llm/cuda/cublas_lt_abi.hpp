// The part of cuBLASLt's binary interface that is called here, declared so that a build needs no
// toolkit. Where one is found, a test compares it with cublasLt.h. Names and numbers are those of
// "cuBLAS", chapter "Using the cuBLASLt API", versions 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm::cuda::lt {

using Status = int32_t;  // cublasStatus_t
constexpr Status kSuccess = 0, kAllocFailed = 3, kInvalidValue = 7;

using Handle = struct HandleObject*;
using MatmulDesc = struct MatmulDescObject*;
using MatrixLayout = struct MatrixLayoutObject*;
using Preference = struct PreferenceObject*;

enum class ComputeType : int32_t { k32F = 68 };  // not one of the FAST kinds, which round to TF32
enum class DataType : int32_t { kR32F = 0 };
enum class Operation : int32_t { kN = 0, kT = 1 };
enum class MatmulDescAttribute : int32_t { kTransA = 3, kTransB = 4 };
enum class PreferenceAttribute : int32_t { kMaxWorkspaceBytes = 1 };

struct Algorithm {
  uint64_t opaque[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves_count;
  int32_t reserved[4];
};

// Members are named as the library exports them.
struct Library {
  // The one that RAPT_CUBLASLT names, else version 13 or 12 where the loader or /usr/local/cuda has
  // them. Throws rapt::Error(kMissingLibrary).
  Library();

  // Throws rapt::Error(kOutOfMemory) for that, rapt::Error(kDevice) for any other failure.
  void check(Status status, const char* call) const;

  const char* (*cublasLtGetStatusString)(Status status);
  Status (*cublasLtCreate)(Handle* handle);
  Status (*cublasLtDestroy)(Handle handle);
  Status (*cublasLtMatmulDescCreate)(MatmulDesc* desc, ComputeType compute, DataType scale);
  Status (*cublasLtMatmulDescDestroy)(MatmulDesc desc);
  Status (*cublasLtMatmulDescSetAttribute)(MatmulDesc desc, MatmulDescAttribute attribute,
                                           const void* value, size_t bytes);
  // Matrices are column-major: element (r, c) is number r + c * leading_dimension.
  Status (*cublasLtMatrixLayoutCreate)(MatrixLayout* layout, DataType type, uint64_t rows,
                                       uint64_t cols, int64_t leading_dimension);
  Status (*cublasLtMatrixLayoutDestroy)(MatrixLayout layout);
  Status (*cublasLtMatmulPreferenceCreate)(Preference* preference);
  Status (*cublasLtMatmulPreferenceDestroy)(Preference preference);
  Status (*cublasLtMatmulPreferenceSetAttribute)(Preference preference,
                                                 PreferenceAttribute attribute, const void* value,
                                                 size_t bytes);
  Status (*cublasLtMatmulAlgoGetHeuristic)(Handle handle, MatmulDesc desc, MatrixLayout a,
                                           MatrixLayout b, MatrixLayout c, MatrixLayout d,
                                           Preference preference, int32_t most,
                                           HeuristicResult* results, int32_t* num_results);
  // d = alpha op(a) op(b) + beta c
  Status (*cublasLtMatmul)(Handle handle, MatmulDesc desc, const void* alpha, const void* a,
                           MatrixLayout a_layout, const void* b, MatrixLayout b_layout,
                           const void* beta, const void* c, MatrixLayout c_layout, void* d,
                           MatrixLayout d_layout, const Algorithm* algorithm, void* workspace,
                           size_t workspace_bytes, struct StreamObject* stream);
};

}  // namespace llm::cuda::lt
