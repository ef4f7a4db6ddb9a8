#include "backends/cuda/kernel_text.hpp"

namespace rapt {

jit::Architecture architecture_for(int32_t compute_capability) {
  // Ada's is apart: from 8.9 on there are conversions to and from FP8 ("PTX ISA", cvt).
  constexpr int32_t kAda = 89;
  if (compute_capability == kAda) return {kAda};
  return {compute_capability / 10 * 10};
}

const char* element_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    default:
      return "Bf16";
  }
}

}  // namespace rapt
