#pragma once

#include <utility>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {

// A tensor in a device buffer of its own.
struct DeviceTensor {
  DeviceTensor(rapt_context* context, DType dtype, std::vector<int64_t> sizes)
      : shape(std::move(sizes)) {
    bytes = size_of(dtype);
    for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
    EXPECT_TRUE(succeeded(rapt_device_buffer_create(context, bytes, &buffer)));
    rapt_device_buffer_info info{};
    info.struct_size = sizeof info;
    EXPECT_TRUE(succeeded(rapt_device_buffer_get_info(buffer, &info)));
    tensor.data = info.data;
    tensor.device = info.device;
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = dl(dtype);
    tensor.shape = shape.data();
  }
  ~DeviceTensor() { rapt_device_buffer_destroy(buffer); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  template <typename Value>
  void set(const std::vector<Value>& values) {
    EXPECT_EQ(values.size() * sizeof(Value), bytes);
    EXPECT_TRUE(
        succeeded(rapt_device_buffer_copy_from_host(buffer, values.data(), bytes, 0, nullptr)));
  }
  std::vector<uint16_t> halves() const {
    std::vector<uint16_t> values(bytes / 2);
    EXPECT_TRUE(
        succeeded(rapt_device_buffer_copy_to_host(buffer, values.data(), bytes, 0, nullptr)));
    return values;
  }

  std::vector<int64_t> shape;
  size_t bytes = 0;
  rapt_device_buffer* buffer = nullptr;
  DLTensor tensor{};
};

}  // namespace rapt::test
