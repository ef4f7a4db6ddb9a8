// Tensors in files: NumPy's .npy (format 1.0 to 3.0) and safetensors, read whole into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt_tool {

// Row-major, 64-byte aligned, owned.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(rapt::DType dtype, std::vector<int64_t> shape);  // contents undefined

  rapt::DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t num_elements() const;
  size_t bytes() const { return num_elements() * rapt::size_of(dtype_); }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  rapt::TensorView view() const;

 private:
  struct Free {
    void operator()(std::byte* pointer) const;
  };
  rapt::DType dtype_ = rapt::DType::kFloat32;
  std::vector<int64_t> shape_;
  std::unique_ptr<std::byte[], Free> data_;
};

// PATH.npy, or PATH.safetensors:NAME. NumPy has no bfloat16: uint16 and 2-byte void arrays are
// taken as its bits if `expected` is bfloat16. Throws rapt::Error(kIo), naming the file, for
// anything unreadable, truncated, of a dtype other than `expected`, or stored in Fortran order.
HostTensor load_tensor(const std::string& path, rapt::DType expected);
// As .npy, format 1.0; bfloat16 as uint16 bits.
void save_npy(const std::string& path, const HostTensor& tensor);

}  // namespace rapt_tool
