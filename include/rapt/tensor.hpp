// Tensors at the boundary: a pointer, a shape and strides that somebody else owns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "rapt/dtype.hpp"
#include "rapt/export.hpp"

namespace rapt {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// A strided view. Strides count elements (not bytes), may be any int64, and are never read for axes
// of size 1. Rapt wants the last axis contiguous. The view owns nothing; the memory must outlive
// every call, and on a GPU every stream operation, that uses it.
struct RAPT_API TensorView {
  static constexpr int kMaxRank = 6;

  void* data = nullptr;  // may be null only when the view has no elements
  DType dtype = DType::kFloat32;
  int32_t rank = 0;  // 0 means "no tensor given"
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};
  Device device{};

  bool has_value() const { return rank > 0; }

  // A row-major view. `data` may point to const memory if the view is only ever used as an input.
  static TensorView contiguous(const void* data, DType dtype, std::initializer_list<int64_t> shape,
                               Device device = {});
  static TensorView strided(const void* data, DType dtype, std::initializer_list<int64_t> shape,
                            std::initializer_list<int64_t> stride, Device device = {});
  // "bfloat16[128, 32, 128]", with strides where they are not row-major.
  std::string describe() const;
};

}  // namespace rapt
