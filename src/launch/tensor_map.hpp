// Descriptors by which the Tensor Memory Accelerator (SM90 and later) copies boxes of a tensor.
#pragma once

#include <array>

#include "launch/device.hpp"
#include "rapt/dtype.hpp"

namespace rapt::cuda {

// A tensor in device memory, and the box of it that one copy moves. Axis 0 is the contiguous one.
struct TensorMapShape {
  DevicePointer address = 0;  // a multiple of 16
  DType dtype = DType::kBFloat16;
  uint32_t rank = 0;                          // 1 to 5
  std::array<uint64_t, 5> sizes = {};         // elements, 1 to 2^32 each
  std::array<uint64_t, 5> stride_bytes = {};  // multiples of 16 below 2^40; [0] is not used
  std::array<uint32_t, 5> box = {};           // elements, 1 to 256 each
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;  // box[0] fits in its span
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::k256Bytes;
};

// Elements of a box that lie outside the tensor arrive as zeros, and are not written.
// Throws Error(kInvalidArgument) that names the field, its value and its bound; Error(kUnsupported)
// where the driver is older than CUDA 12.0.
TensorMap encode(const Driver& driver, const TensorMapShape& shape);

}  // namespace rapt::cuda
