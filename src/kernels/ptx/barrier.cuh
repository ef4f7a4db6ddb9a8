// mbarriers: objects of 8 bytes in shared memory on which threads wait for arrivals and for bytes
// of asynchronous copies. Phases alternate in parity; the first has parity 0. For sm_90 and later.
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

// PTX ISA, mbarrier.init: a phase is complete after so many arrivals and all bytes they announced.
DEVICE void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// PTX ISA, fence.mbarrier_init: after barrier_init(), before other threads or copies use it.
DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// PTX ISA, mbarrier.arrive: releases what the thread did.
DEVICE void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// PTX ISA, mbarrier.arrive.expect_tx: announces bytes, and arrives.
DEVICE void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// PTX ISA, mbarrier.try_wait: until the phase of this parity is complete.
DEVICE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred complete;\n"
      "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n@!complete bra "
      "WAIT;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// PTX ISA, fence.proxy.async: what this thread stored to shared memory, or knows to be stored, may
// be read or overwritten by tensor copies and warpgroup products that come later.
DEVICE void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace rapt::device
