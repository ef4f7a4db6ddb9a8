#include "llm/cuda/cublas_lt.hpp"

#include "llm/cuda/shared_library.hpp"
#include "llm/model/failure.hpp"

namespace llm::cuda {
namespace lt {

Library::Library() {
  const SharedLibrary library(
      {.named_by = "RAPT_CUBLASLT",
       .names = {"libcublasLt.so.13", "libcublasLt.so.12",
                 "/usr/local/cuda/lib64/libcublasLt.so.13",
                 "/usr/local/cuda/lib64/libcublasLt.so.12"},
       .purpose = "needed for the products of dense layers on a GPU",
       .remedy = "install cuBLAS (pip: nvidia-cublas, whose libcublasLt.so.13 the environment "
                 "variable RAPT_CUBLASLT names; apt: libcublas-13-0), or keep the dense layers on "
                 "the host: --dense host"});
  library.find(cublasLtGetStatusString, "cublasLtGetStatusString");
  library.find(cublasLtCreate, "cublasLtCreate");
  library.find(cublasLtDestroy, "cublasLtDestroy");
  library.find(cublasLtMatmulDescCreate, "cublasLtMatmulDescCreate");
  library.find(cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy");
  library.find(cublasLtMatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  library.find(cublasLtMatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  library.find(cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  library.find(cublasLtMatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  library.find(cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  library.find(cublasLtMatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  library.find(cublasLtMatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(cublasLtMatmul, "cublasLtMatmul");
}

void Library::check(Status status, const char* call) const {
  if (status != kSuccess) [[unlikely]]
    fail(status == kAllocFailed ? rapt::ErrorCode::kOutOfMemory : rapt::ErrorCode::kDevice, call,
         ": ", cublasLtGetStatusString(status), " (", status, ")");
}

}  // namespace lt

namespace {

// What NVIDIA recommends for Hopper, "cuBLAS", cublasSetWorkspace(); older GPUs need less.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace

CublasLt::CublasLt(rapt::Context& context)
    : handle_(nullptr, library_.cublasLtDestroy),
      desc_(nullptr, library_.cublasLtMatmulDescDestroy),
      preference_(nullptr, library_.cublasLtMatmulPreferenceDestroy) {
  lt::Handle handle = nullptr;
  library_.check(library_.cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
  lt::MatmulDesc desc = nullptr;
  library_.check(
      library_.cublasLtMatmulDescCreate(&desc, lt::ComputeType::k32F, lt::DataType::kR32F),
      "cublasLtMatmulDescCreate");
  desc_.reset(desc);
  const lt::Operation transposed = lt::Operation::kT;
  library_.check(library_.cublasLtMatmulDescSetAttribute(desc, lt::MatmulDescAttribute::kTransA,
                                                         &transposed, sizeof(transposed)),
                 "cublasLtMatmulDescSetAttribute");
  lt::Preference preference = nullptr;
  library_.check(library_.cublasLtMatmulPreferenceCreate(&preference),
                 "cublasLtMatmulPreferenceCreate");
  preference_.reset(preference);
  library_.check(library_.cublasLtMatmulPreferenceSetAttribute(
                     preference, lt::PreferenceAttribute::kMaxWorkspaceBytes, &kWorkspaceBytes,
                     sizeof(kWorkspaceBytes)),
                 "cublasLtMatmulPreferenceSetAttribute");
  workspace_ = rapt::DeviceBuffer(context, kWorkspaceBytes);
}

CublasLt::Owned<lt::MatrixLayoutObject> CublasLt::make_layout(int64_t rows, int64_t cols) const {
  lt::MatrixLayout layout = nullptr;
  library_.check(
      library_.cublasLtMatrixLayoutCreate(&layout, lt::DataType::kR32F, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(cols), rows),
      "cublasLtMatrixLayoutCreate");
  return {layout, library_.cublasLtMatrixLayoutDestroy};
}

CublasLt::Shape CublasLt::make_shape(int64_t rows, int64_t cols, int64_t num_rows) const {
  Shape shape = {
      make_layout(cols, rows), make_layout(cols, num_rows), make_layout(rows, num_rows), {}};
  lt::HeuristicResult result = {};
  int32_t num_results = 0;
  library_.check(library_.cublasLtMatmulAlgoGetHeuristic(
                     handle_.get(), desc_.get(), shape.weight.get(), shape.x.get(), shape.out.get(),
                     shape.out.get(), preference_.get(), 1, &result, &num_results),
                 "cublasLtMatmulAlgoGetHeuristic");
  if (num_results < 1 || result.state != lt::kSuccess)
    fail(rapt::ErrorCode::kUnsupported, "cuBLASLt has no product of [", num_rows, ", ", cols,
         "] by [", cols, ", ", rows,
         "] in fp32 for this GPU: keep the dense layers on the host "
         "with --dense host");
  shape.algorithm = result.algorithm;
  return shape;
}

void CublasLt::multiply(const float* weight, int64_t rows, int64_t cols, const float* x,
                        int64_t num_rows, float* out, bool accumulate) {
  if (num_rows == 0) return;
  auto known = shapes_.find({rows, cols, num_rows});
  if (known == shapes_.end())
    known =
        shapes_.emplace(std::tuple(rows, cols, num_rows), make_shape(rows, cols, num_rows)).first;
  const Shape& shape = known->second;
  const float alpha = 1, beta = accumulate ? 1 : 0;
  library_.check(
      library_.cublasLtMatmul(handle_.get(), desc_.get(), &alpha, weight, shape.weight.get(), x,
                              shape.x.get(), &beta, out, shape.out.get(), out, shape.out.get(),
                              &shape.algorithm, workspace_.data(), workspace_.bytes(), nullptr),
      "cublasLtMatmul");
}

}  // namespace llm::cuda
