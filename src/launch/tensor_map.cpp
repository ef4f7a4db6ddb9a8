#include "launch/tensor_map.hpp"

#include <bit>
#include <limits>

namespace rapt::cuda {
namespace {

constexpr uint64_t kAlignment = 16, kMaxSize = uint64_t{1} << 32, kMaxStride = uint64_t{1} << 40;
constexpr uint32_t kMaxRank = 5, kMaxBox = 256;

// FP8 is moved as bytes: the unit does not look into elements.
TensorMapType type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return TensorMapType::kFloat32;
    case DType::kFloat16:
      return TensorMapType::kFloat16;
    case DType::kBFloat16:
      return TensorMapType::kBFloat16;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kUInt8:
      return TensorMapType::kUInt8;
    case DType::kInt32:
      return TensorMapType::kInt32;
    case DType::kInt64:
      return TensorMapType::kInt64;
  }
  fail(ErrorCode::kInvalidArgument, "tensor map: dtype ", static_cast<int>(dtype), " is unknown");
}

uint64_t span_bytes(TensorMapSwizzle swizzle) {
  if (swizzle == TensorMapSwizzle::kNone) return std::numeric_limits<uint64_t>::max();
  return uint64_t{16} << static_cast<int>(swizzle);
}

// "CUDA Driver API", cuTensorMapEncodeTiled: the driver answers any breach with the same
// CUDA_ERROR_INVALID_VALUE.
void check_shape(const TensorMapShape& shape) {
  check(shape.address && shape.address % kAlignment == 0, "tensor map: address is ", shape.address,
        ", must be a multiple of ", kAlignment, " that is not 0");
  check(shape.rank >= 1 && shape.rank <= kMaxRank, "tensor map: rank is ", shape.rank,
        ", must be 1 to ", kMaxRank);
  for (uint32_t axis = 0; axis < shape.rank; axis++) {
    check(shape.sizes[axis] >= 1 && shape.sizes[axis] <= kMaxSize, "tensor map: sizes[", axis,
          "] is ", shape.sizes[axis], ", must be 1 to ", kMaxSize);
    check(shape.box[axis] >= 1 && shape.box[axis] <= kMaxBox, "tensor map: box[", axis, "] is ",
          shape.box[axis], ", must be 1 to ", kMaxBox);
    if (axis == 0) continue;
    const uint64_t stride = shape.stride_bytes[axis];
    check(stride % kAlignment == 0 && stride < kMaxStride, "tensor map: stride_bytes[", axis,
          "] is ", stride, ", must be a multiple of ", kAlignment, " below ", kMaxStride);
  }
  const uint64_t inner = shape.box[0] * size_of(shape.dtype);
  check(inner % kAlignment == 0, "tensor map: box[0] has ", inner, " bytes, must be a multiple of ",
        kAlignment);
  check(inner <= span_bytes(shape.swizzle), "tensor map: box[0] has ", inner,
        " bytes, must fit in the swizzle's span of ", span_bytes(shape.swizzle));
}

}  // namespace

TensorMap encode(const Driver& driver, const TensorMapShape& shape) {
  if (!driver.cuTensorMapEncodeTiled)
    fail(ErrorCode::kUnsupported, "tensor maps need a driver for CUDA 12.0 or later; ", driver.path,
         " is for ", driver.version / 1000, ".", driver.version % 1000 / 10);
  const TensorMapType type = type_of(shape.dtype);
  check_shape(shape);
  constexpr uint32_t kEveryElement[kMaxRank] = {1, 1, 1, 1, 1};
  TensorMap map;
  driver.check(
      driver.cuTensorMapEncodeTiled(&map, type, shape.rank, std::bit_cast<void*>(shape.address),
                                    shape.sizes.data(), shape.stride_bytes.data() + 1,
                                    shape.box.data(), kEveryElement, TensorMapInterleave::kNone,
                                    shape.swizzle, shape.l2_promotion, TensorMapFill::kZeros),
      "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace rapt::cuda
