// Floating-point elements, whatever their type: for plain code, not for kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check.hpp"
#include "core/float16.hpp"
#include "rapt/dtype.hpp"

namespace rapt {

// Element `index` of an array of float32, float16 or bfloat16.
inline float load_element(const void* array, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(array)[index];
    case DType::kFloat16:
      return float16_to_float(static_cast<const uint16_t*>(array)[index]);
    case DType::kBFloat16:
      return bfloat16_to_float(static_cast<const uint16_t*>(array)[index]);
    default:
      fail(ErrorCode::kInternal, "an element of ", to_string(dtype), " was read as a float");
  }
}

// Elements [first, first + out.size()) of such an array; the type is looked at once.
inline void load_elements(const void* array, DType dtype, int64_t first, std::span<double> out) {
  auto load = [&](const auto* elements, auto to_float) {
    for (size_t i = 0; i < out.size(); i++) out[i] = to_float(elements[first + i]);
  };
  switch (dtype) {
    case DType::kFloat32:
      return load(static_cast<const float*>(array), [](float value) { return value; });
    case DType::kFloat16:
      return load(static_cast<const uint16_t*>(array), float16_to_float);
    case DType::kBFloat16:
      return load(static_cast<const uint16_t*>(array), bfloat16_to_float);
    default:
      fail(ErrorCode::kInternal, "elements of ", to_string(dtype), " were read as floats");
  }
}

// One element the other way, rounded to nearest even.
inline void store_element(void* array, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kFloat32:
      static_cast<float*>(array)[index] = value;
      break;
    case DType::kFloat16:
      static_cast<uint16_t*>(array)[index] = float_to_float16(value);
      break;
    case DType::kBFloat16:
      static_cast<uint16_t*>(array)[index] = float_to_bfloat16(value);
      break;
    default:
      fail(ErrorCode::kInternal, "an element of ", to_string(dtype), " was written as a float");
  }
}

}  // namespace rapt
