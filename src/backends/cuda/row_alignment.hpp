// How rows of a TensorView lie, which decides how wide a kernel may read them.
#pragma once

#include "core/strides.hpp"

namespace rapt {

// The largest power of two, up to `most`, that the first byte of every row (of the last axis) is a
// multiple of.
inline int64_t row_alignment(const TensorView& tensor, int64_t most) {
  auto bits = static_cast<uint64_t>(most) | reinterpret_cast<uintptr_t>(tensor.data);
  for (int32_t axis = 0; axis + 1 < tensor.rank; axis++)
    bits |= static_cast<uint64_t>(byte_stride(tensor, axis));
  return static_cast<int64_t>(bits & -bits);
}

}  // namespace rapt
