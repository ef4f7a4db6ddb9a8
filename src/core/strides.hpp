// Reading a TensorView's strides.
#pragma once

#include <cstdint>

#include "rapt/dtype.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// The stride of an axis in elements; 0 for an axis of size 1, whose stride may hold anything.
inline int64_t stride_of(const TensorView& tensor, int32_t axis) {
  return tensor.shape[axis] > 1 ? tensor.stride[axis] : 0;
}
// The same in bytes.
inline int64_t byte_stride(const TensorView& tensor, int32_t axis) {
  return stride_of(tensor, axis) * static_cast<int64_t>(size_of(tensor.dtype));
}

}  // namespace rapt
