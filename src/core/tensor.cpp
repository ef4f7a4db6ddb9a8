#include "rapt/tensor.hpp"

#include <algorithm>
#include <iterator>

#include "core/check.hpp"

namespace rapt {

TensorView TensorView::contiguous(const void* data, DType dtype,
                                  std::initializer_list<int64_t> shape, Device device) {
  TensorView view = strided(data, dtype, shape, {}, device);
  int64_t stride = 1;
  for (int32_t axis = view.rank - 1; axis >= 0; axis--) {
    view.stride[axis] = stride;
    stride = checked_mul(stride, std::max<int64_t>(view.shape[axis], 1), "TensorView::contiguous");
  }
  return view;
}

TensorView TensorView::strided(const void* data, DType dtype, std::initializer_list<int64_t> shape,
                               std::initializer_list<int64_t> stride, Device device) {
  check(std::ssize(shape) <= kMaxRank, "a tensor of rank ", shape.size(), ": at most ",
        static_cast<int>(kMaxRank), " axes");
  check(stride.size() == 0 || stride.size() == shape.size(), "a tensor of rank ", shape.size(),
        " was given ", stride.size(), " strides");
  TensorView view;
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.rank = static_cast<int32_t>(shape.size());
  view.device = device;
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(stride.begin(), stride.end(), view.stride.begin());
  return view;
}

std::string TensorView::describe() const {
  std::string sizes, strides;
  bool row_major = true;
  // Any view can be described, however wrong: the product may wrap, and a rank past the arrays is
  // cut off.
  uint64_t expected = 1;
  const int32_t axes = std::min(rank, static_cast<int32_t>(kMaxRank));
  for (int32_t axis = axes - 1; axis >= 0; axis--) {
    if (shape[axis] != 1 && static_cast<uint64_t>(stride[axis]) != expected) row_major = false;
    expected *= static_cast<uint64_t>(std::max<int64_t>(shape[axis], 1));
  }
  for (int32_t axis = 0; axis < axes; axis++) {
    sizes += (axis ? ", " : "") + std::to_string(shape[axis]);
    strides += (axis ? ", " : "") + std::to_string(stride[axis]);
  }
  return concat(to_string(dtype), "[", sizes, "]", row_major ? "" : " strides [" + strides + "]");
}

}  // namespace rapt
