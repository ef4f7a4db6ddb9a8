// cuBLASLt for devices whose memory is the host's, as the emulated driver's: products of fp32
// matrices in fp64, by the layouts and pointers that it is given. What it has not been told to
// expect is refused, as the library would.
#include "llm/cuda/cublas_lt_abi.hpp"

namespace llm::cuda::lt {

struct HandleObject {};
struct MatmulDescObject {
  ComputeType compute;
  DataType scale;
  Operation trans_a = Operation::kN, trans_b = Operation::kN;
};
struct MatrixLayoutObject {
  DataType type;
  uint64_t rows, cols;
  int64_t leading_dimension;
  friend bool operator==(const MatrixLayoutObject&, const MatrixLayoutObject&) = default;
};
struct PreferenceObject {
  uint64_t workspace_bytes = 0;
};

namespace {

constexpr Status kNotSupported = 15;
constexpr uint64_t kMark = 0x6c74'616c'676f'3031;  // of an algorithm of ours
constexpr size_t kWorkspace = 4096;                // it asks for as much

uint64_t inner(const MatmulDescObject& desc, const MatrixLayoutObject& a) {
  return desc.trans_a == Operation::kT ? a.rows : a.cols;
}
uint64_t outer(const MatmulDescObject& desc, const MatrixLayoutObject& a) {
  return desc.trans_a == Operation::kT ? a.cols : a.rows;
}

// d [m, n] = op(a) [m, k] b [k, n]
bool fit(const MatmulDescObject& desc, const MatrixLayoutObject& a, const MatrixLayoutObject& b,
         const MatrixLayoutObject& c, const MatrixLayoutObject& d) {
  return desc.trans_b == Operation::kN && inner(desc, a) == b.rows && outer(desc, a) == d.rows &&
         b.cols == d.cols && c == d;
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(Status status) {
  switch (status) {
    case kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unknown";
  }
}

Status cublasLtCreate(Handle* handle) {
  return *handle = new HandleObject, kSuccess;
}
Status cublasLtDestroy(Handle handle) {
  return delete handle, kSuccess;
}

Status cublasLtMatmulDescCreate(MatmulDesc* desc, ComputeType compute, DataType scale) {
  if (compute != ComputeType::k32F || scale != DataType::kR32F) return kNotSupported;
  return *desc = new MatmulDescObject{compute, scale}, kSuccess;
}
Status cublasLtMatmulDescDestroy(MatmulDesc desc) {
  return delete desc, kSuccess;
}
Status cublasLtMatmulDescSetAttribute(MatmulDesc desc, MatmulDescAttribute attribute,
                                      const void* value, size_t bytes) {
  if (bytes != sizeof(Operation)) return kInvalidValue;
  (attribute == MatmulDescAttribute::kTransA ? desc->trans_a : desc->trans_b) =
      *static_cast<const Operation*>(value);
  return kSuccess;
}

Status cublasLtMatrixLayoutCreate(MatrixLayout* layout, DataType type, uint64_t rows, uint64_t cols,
                                  int64_t leading_dimension) {
  if (type != DataType::kR32F) return kNotSupported;
  if (rows == 0 || cols == 0 || leading_dimension < static_cast<int64_t>(rows))
    return kInvalidValue;
  return *layout = new MatrixLayoutObject{type, rows, cols, leading_dimension}, kSuccess;
}
Status cublasLtMatrixLayoutDestroy(MatrixLayout layout) {
  return delete layout, kSuccess;
}

Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  return *preference = new PreferenceObject, kSuccess;
}
Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  return delete preference, kSuccess;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference preference, PreferenceAttribute attribute,
                                            const void* value, size_t bytes) {
  if (attribute != PreferenceAttribute::kMaxWorkspaceBytes || bytes != sizeof(uint64_t))
    return kInvalidValue;
  return preference->workspace_bytes = *static_cast<const uint64_t*>(value), kSuccess;
}

Status cublasLtMatmulAlgoGetHeuristic(Handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b,
                                      MatrixLayout c, MatrixLayout d, Preference preference,
                                      int32_t most, HeuristicResult* results,
                                      int32_t* num_results) {
  if (most < 1 || !fit(*desc, *a, *b, *c, *d)) return kInvalidValue;
  if (preference->workspace_bytes < kWorkspace) return kNotSupported;
  results[0] = {{{kMark, d->rows, d->cols}}, kWorkspace, kSuccess, 1, {}};
  return *num_results = 1, kSuccess;
}

Status cublasLtMatmul(Handle, MatmulDesc desc, const void* alpha, const void* a_data,
                      MatrixLayout a, const void* b_data, MatrixLayout b, const void* beta,
                      const void* c_data, MatrixLayout c, void* d_data, MatrixLayout d,
                      const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                      struct StreamObject*) {
  // An algorithm is one for the shape it was asked for.
  if (!fit(*desc, *a, *b, *c, *d) || !workspace || workspace_bytes < kWorkspace ||
      algorithm->opaque[0] != kMark || algorithm->opaque[1] != d->rows ||
      algorithm->opaque[2] != d->cols)
    return kInvalidValue;
  const auto* left = static_cast<const float*>(a_data);
  const auto* right = static_cast<const float*>(b_data);
  const auto* old = static_cast<const float*>(c_data);
  auto* out = static_cast<float*>(d_data);
  const float scale = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  const bool transposed = desc->trans_a == Operation::kT;
  const int64_t a_row = transposed ? a->leading_dimension : 1;
  const int64_t a_col = transposed ? 1 : a->leading_dimension;
  const auto depth = static_cast<int64_t>(b->rows);
  for (int64_t col = 0; col < static_cast<int64_t>(d->cols); ++col) {
    for (int64_t row = 0; row < static_cast<int64_t>(d->rows); ++row) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += static_cast<double>(left[row * a_row + k * a_col]) *
               right[k + col * b->leading_dimension];
      const int64_t at = row + col * d->leading_dimension;
      sum *= scale;
      // As the library has it: with beta 0 the old values are not read, and may be NaN.
      if (kept != 0) sum += kept * static_cast<double>(old[at]);
      out[at] = static_cast<float>(sum);
    }
  }
  return kSuccess;
}

}  // extern "C"

}  // namespace llm::cuda::lt
