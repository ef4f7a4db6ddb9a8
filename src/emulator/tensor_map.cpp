#include "emulator/tensor_map.hpp"

#include "core/check.hpp"

namespace rapt::emulator {

EncodedMap encode_tensor_map(const Memory& memory, const TensorShape& shape) {
  const size_t rank = shape.dims.size();
  check(rank >= 1 && rank <= EncodedMap::kMaxRank, "rank is ", rank, ", must be 1 to 5");
  check(shape.strides.size() == rank - 1 && shape.box.size() == rank,
        "strides or box of another rank");
  check(reinterpret_cast<uintptr_t>(shape.base) % 16 == 0, "base is not aligned to 16 bytes");
  EncodedMap map = {};
  map.base = static_cast<char*>(const_cast<void*>(shape.base));
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(shape.element_bytes);
  map.swizzle = shape.swizzle;
  map.mark = EncodedMap::kMark;
  map.strides[0] = shape.element_bytes;
  uint64_t span_bytes = shape.element_bytes;
  for (size_t i = 0; i < rank; ++i) {
    check(shape.dims[i] >= 1 && shape.dims[i] < 1ull << 32, "dimension ", i, " is ", shape.dims[i]);
    check(shape.box[i] >= 1 && shape.box[i] <= 256, "box ", i, " is ", shape.box[i],
          ", must be 1 to 256");
    if (i) {
      map.strides[i] = shape.strides[i - 1];
      check(map.strides[i] % 16 == 0 && map.strides[i] < 1ull << 40, "stride ", i, " is ",
            map.strides[i], ", must be a multiple of 16 below 2^40");
    }
    map.dims[i] = static_cast<uint32_t>(shape.dims[i]);
    map.box[i] = static_cast<uint16_t>(shape.box[i]);
    span_bytes += (shape.dims[i] - 1) * map.strides[i];
  }
  check(map.row_bytes() % 16 == 0, "a box row has ", map.row_bytes(),
        " bytes, must be a multiple of 16");
  check(
      shape.swizzle == Swizzle::kNone || map.row_bytes() <= 16u << static_cast<int>(shape.swizzle),
      "a box row of ", map.row_bytes(), " bytes is wider than its swizzle");
  const Allocation* allocation = memory.find(shape.base);
  check(allocation && map.base + span_bytes <= allocation->end, "the tensor spans ", span_bytes,
        " bytes from ", memory.describe(shape.base), ", which is no allocation");
  return map;
}

}  // namespace rapt::emulator
