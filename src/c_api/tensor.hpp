// DLTensor and TensorView, both ways.
#pragma once

#include <cstdint>

#include "rapt/rapt.h"
#include "rapt/tensor.hpp"

namespace rapt::c_api {

DType dtype_of(DLDataType type, const char* name);
DLDataType dl_dtype(DType dtype);
Device device_of(DLDevice device, const char* name);
DLDevice dl_device(Device device);

// Throws Error(kInvalidArgument) that begins with `name`. A null tensor is "no tensor given", which
// the functions that need one refuse by its name.
TensorView view_of(const DLTensor* tensor, const char* name);

// `ints` holds the shape and then the strides: 2 * view.rank entries.
DLTensor dl_tensor(const TensorView& view, DLDevice device, int64_t* ints);

}  // namespace rapt::c_api
