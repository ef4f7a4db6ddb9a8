// Products of matrices in fp32 by NVIDIA's cuBLASLt.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "llm/cuda/cublas_lt_abi.hpp"
#include "rapt/rapt.hpp"

namespace llm::cuda {

class CublasLt {
 public:
  // The device's context must be current, here and in every call; `context` must outlive it. Throws
  // rapt::Error(kMissingLibrary) where the library is not there.
  explicit CublasLt(rapt::Context& context);

  // out [num_rows, rows] (+)= x [num_rows, cols] by transposed weight [rows, cols], all fp32
  // without gaps, on the default stream. The first product of a shape asks the library for its way,
  // which takes longer than all later ones.
  void multiply(const float* weight, int64_t rows, int64_t cols, const float* x, int64_t num_rows,
                float* out, bool accumulate);

 private:
  template <typename Object>
  using Owned = std::unique_ptr<Object, lt::Status (*)(Object*)>;

  // A weight's shape with a number of rows: the matrices as cuBLASLt sees them, column-major, so
  // that each is the transpose of ours.
  struct Shape {
    Owned<lt::MatrixLayoutObject> weight, x, out;
    lt::Algorithm algorithm;
  };
  Owned<lt::MatrixLayoutObject> make_layout(int64_t rows, int64_t cols) const;
  Shape make_shape(int64_t rows, int64_t cols, int64_t num_rows) const;

  lt::Library library_;
  Owned<lt::HandleObject> handle_;
  Owned<lt::MatmulDescObject> desc_;
  Owned<lt::PreferenceObject> preference_;
  rapt::DeviceBuffer workspace_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Shape> shapes_;  // rows, cols, num_rows
};

}  // namespace llm::cuda
