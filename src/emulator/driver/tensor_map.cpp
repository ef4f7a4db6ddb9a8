#include "emulator/tensor_map.hpp"

#include <array>
#include <cstring>

#include "emulator/driver/context.hpp"

namespace rapt::emulator {
namespace {

int element_bytes(cuda::TensorMapType type) {
  switch (type) {
    case cuda::TensorMapType::kUInt8:
      return 1;
    case cuda::TensorMapType::kFloat16:
    case cuda::TensorMapType::kBFloat16:
      return 2;
    case cuda::TensorMapType::kInt32:
    case cuda::TensorMapType::kFloat32:
      return 4;
    case cuda::TensorMapType::kInt64:
      return 8;
  }
  throw Refusal{kNotSupported, concat("tensor map of type ", static_cast<int32_t>(type))};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" Result cuTensorMapEncodeTiled(cuda::TensorMap* map, cuda::TensorMapType type,
                                         uint32_t rank, void* address, const uint64_t* sizes,
                                         const uint64_t* stride_bytes, const uint32_t* box,
                                         const uint32_t* element_strides,
                                         cuda::TensorMapInterleave interleave,
                                         cuda::TensorMapSwizzle swizzle, cuda::TensorMapL2Promotion,
                                         cuda::TensorMapFill fill) {
  return answered([&] {
    require(rank >= 1 && rank <= EncodedMap::kMaxRank, cuda::kInvalidValue, "rank is ", rank,
            ", must be 1 to ", EncodedMap::kMaxRank);
    require(interleave == cuda::TensorMapInterleave::kNone, kNotSupported, "interleaved layouts");
    require(fill == cuda::TensorMapFill::kZeros, kNotSupported, "elements outside that are NaN");
    require(
        swizzle >= cuda::TensorMapSwizzle::kNone && swizzle <= cuda::TensorMapSwizzle::k128Bytes,
        kNotSupported, "swizzle ", static_cast<int32_t>(swizzle));
    for (uint32_t axis = 0; axis < rank; axis++)
      require(element_strides[axis] == 1, kNotSupported, "element strides");
    ContextObject& context = current_context();
    const std::lock_guard lock(context.mutex);
    const EncodedMap encoded = encode_tensor_map(context.memory, {address,
                                                                  element_bytes(type),
                                                                  {sizes, rank},
                                                                  {stride_bytes, rank - 1},
                                                                  {box, rank},
                                                                  static_cast<Swizzle>(swizzle)});
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, &encoded, sizeof encoded);
  });
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
