// Kernels as backends ask jit/ for them, and as they keep them.
#pragma once

#include <atomic>
#include <cstddef>

#include "core/check.hpp"
#include "jit/loaded_kernels.hpp"
#include "rapt/dtype.hpp"

namespace rapt {

// What decides a kernel, and its entry.
struct KernelText {
  jit::KernelKey key;
  jit::KernelSource source;
  int32_t shared_bytes = 0;  // dynamic shared memory of a block
};

// That a struct has the host's size on the device too.
template <typename Struct>
jit::Agreement same_size(const char* name) {
  return {concat("sizeof(", name, ")"), sizeof(Struct)};
}

// The device text's type of it: float32, float16 or bfloat16.
const char* element_of(DType dtype);

// What kernels without features of a single architecture are compiled for, to run on a device of
// that compute capability: one image for a family, so that a pack needs few.
jit::Architecture architecture_for(int32_t compute_capability);

// A kernel that is loaded at its first use, and costs one look from then on. Any number of threads.
class LazyKernel {
 public:
  template <typename MakeText>
  const cuda::Kernel& get(jit::LoadedKernels& kernels, const MakeText& make_text) {
    if (const cuda::Kernel* known = kernel_.load(std::memory_order_acquire)) return *known;
    const KernelText text = make_text();
    const cuda::Kernel& loaded = kernels.get(text.key, text.source, text.shared_bytes);
    kernel_.store(&loaded, std::memory_order_release);
    return loaded;
  }

 private:
  std::atomic<const cuda::Kernel*> kernel_ = nullptr;
};

}  // namespace rapt
