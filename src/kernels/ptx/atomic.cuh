// How blocks tell each other of their work: stores, sync_block(), then in one thread
// fence_device(), atomic_add(), fence_device(); after another sync_block() what the blocks counted
// so far stored may be read with load_coherent_16() or load_coherent_f32().
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

// PTX ISA, atom.add: returns the value before. Relaxed: orders nothing by itself.
DEVICE u32 atomic_add(u32* p, u32 value) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(value)
               : "memory");
  return old;
}
// PTX ISA, fence.acq_rel.gpu.
DEVICE void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

}  // namespace rapt::device
