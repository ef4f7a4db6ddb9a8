// Reading a TensorView's strides.
#pragma once

#include <cstdint>

#include "rapt/tensor.hpp"

namespace rapt {

// The stride of an axis in elements; 0 for an axis of size 1, whose stride may hold anything.
inline int64_t stride_of(const TensorView& tensor, int32_t axis) {
  return tensor.shape[axis] > 1 ? tensor.stride[axis] : 0;
}

}  // namespace rapt
