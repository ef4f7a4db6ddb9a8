// Happens-before: what orders accesses, and whether an access is ordered. It finds a missing wait,
// barrier or fence in any schedule, whether or not the values come out right.
//
// Barriers and __syncwarp() order; shuffles, votes and matrix instructions don't. Everything here
// does nothing when the launch does not check order.
#pragma once

#include "emulator/machine.hpp"

namespace rapt::emulator {

// What t knows and did is added to what others will acquire.
void release(Thread& t, ClockBuilder& into);
void acquire(Thread& t, const ClockRef& known);

// The running thread, or another lane that it acts for, accesses shared memory.
void check_shared_access(Thread& t, uint32_t address, uint32_t bytes, bool write,
                         bool ordinary = false);
// A copy of t writes the 16 bytes at its address.
void check_copy_lands(Thread& t, const Copy& copy);

// What the threads that issue an asynchronous operation of the other proxy know and did by then:
// the knowledge that all of them have, and their own accesses. A warp issues products together.
struct Issue {
  ClockRef known;
  struct Own {
    uint32_t time = 0, groups = 0, fenced_time = 0, fenced_groups = 0;
  } own[kLanes];

  void add(const Thread& t);
};
// Such an operation, issued by lanes of `warp`, accesses shared memory; t is blamed.
void check_async_access(const Thread& t, const Warp& warp, const Issue& issue, uint32_t address,
                        uint32_t bytes, Access access);
// t knows that accesses of an asynchronous agent up to this time are over.
void acquire_agent(Thread& t, uint32_t agent, uint32_t time);
// fence.proxy.async: what t knows to be over, asynchronous operations that it orders know too.
void fence_proxy(Thread& t);

enum class GlobalAccess { kLoad, kReadOnlyLoad, kStore, kAtomic };
void check_global_access(Thread& t, const Allocation& allocation, const void* p, uint32_t bytes,
                         GlobalAccess access, bool ordinary = false);

// fence_device(), and an atomic at p: what one thread published with a fence before its atomic,
// another knows after a fence that follows its own atomic at the same p.
void fence_global(Thread& t);
void synchronize_at(Thread& t, const void* p);

}  // namespace rapt::emulator
