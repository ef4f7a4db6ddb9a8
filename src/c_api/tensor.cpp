#include "c_api/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/check.hpp"

namespace rapt::c_api {
namespace {

struct DTypeCode {
  DType dtype;
  uint8_t code, bits;
};

// DLPack's other E4M3 kinds have infinities or no negative zero: other numbers in the same bytes.
constexpr std::array kDTypeCodes = {
    DTypeCode{DType::kFloat32, kDLFloat, 32},
    DTypeCode{DType::kFloat16, kDLFloat, 16},
    DTypeCode{DType::kBFloat16, kDLBfloat, 16},
    DTypeCode{DType::kFloat8E4M3, kDLFloat8_e4m3fn, 8},
    DTypeCode{DType::kFloat8E5M2, kDLFloat8_e5m2, 8},
    DTypeCode{DType::kUInt8, kDLUInt, 8},
    DTypeCode{DType::kInt32, kDLInt, 32},
    DTypeCode{DType::kInt64, kDLInt, 64},
};

}  // namespace

DType dtype_of(DLDataType type, const char* name) {
  check(type.lanes == 1, name, " has ", type.lanes, " lanes: must be 1");
  for (const DTypeCode& entry : kDTypeCodes)
    if (entry.code == type.code && entry.bits == type.bits) return entry.dtype;
  fail(ErrorCode::kInvalidArgument, name, " has DLPack type code ", int{type.code}, " with ",
       int{type.bits},
       " bits: must be float 32 or 16, bfloat 16, float8_e4m3fn, float8_e5m2, uint 8, int 32 or "
       "int 64");
}

DLDataType dl_dtype(DType dtype) {
  for (const DTypeCode& entry : kDTypeCodes)
    if (entry.dtype == dtype) return {entry.code, entry.bits, 1};
  fail(ErrorCode::kInternal, "dtype ", to_string(dtype), " has no DLPack code");
}

Device device_of(DLDevice device, const char* name) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned memory: the host's
      return {DeviceKind::kCpu, 0};
    case kDLCUDA:
      return {DeviceKind::kCuda, device.device_id};
    default:
      fail(ErrorCode::kInvalidArgument, name, " is on DLPack device type ",
           static_cast<int>(device.device_type), ": must be kDLCPU, kDLCUDAHost or kDLCUDA");
  }
}

DLDevice dl_device(Device device) {
  return {device.kind == DeviceKind::kCpu ? kDLCPU : kDLCUDA, device.index};
}

TensorView view_of(const DLTensor* tensor, const char* name) {
  TensorView view;
  if (!tensor) return view;
  check(tensor->ndim >= 1 && tensor->ndim <= TensorView::kMaxRank, name, " has ndim ", tensor->ndim,
        ": must be in [1, ", int{TensorView::kMaxRank}, "]");
  check(tensor->shape != nullptr, name, " has no shape: shape is null");
  view.dtype = dtype_of(tensor->dtype, name);
  view.device = device_of(tensor->device, name);
  view.rank = tensor->ndim;
  int64_t row_major = 1;
  for (int32_t axis = view.rank - 1; axis >= 0; axis--) {
    view.shape[axis] = tensor->shape[axis];
    check(view.shape[axis] >= 0, name, " has size ", view.shape[axis], " in axis ", axis,
          ": must not be negative");
    view.stride[axis] = tensor->strides ? tensor->strides[axis] : row_major;
    if (!tensor->strides)
      row_major = checked_mul(row_major, std::max<int64_t>(view.shape[axis], 1), name);
  }
  if (tensor->data) {
    uintptr_t end;
    check(!__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor->data), tensor->byte_offset,
                                  &end),
          name, " has byte_offset ", tensor->byte_offset, ": it leaves the address space");
    view.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  }
  return view;
}

DLTensor dl_tensor(const TensorView& view, DLDevice device, int64_t* ints) {
  std::copy_n(view.shape.begin(), view.rank, ints);
  std::copy_n(view.stride.begin(), view.rank, ints + view.rank);
  DLTensor tensor{};
  tensor.data = view.data;
  tensor.device = device;
  tensor.ndim = view.rank;
  tensor.dtype = dl_dtype(view.dtype);
  tensor.shape = ints;
  tensor.strides = ints + view.rank;
  return tensor;
}

}  // namespace rapt::c_api
