// Addresses in the running block's shared memory and in global memory, checked.
#pragma once

#include "emulator/order.hpp"

namespace rapt::emulator {

// The bytes [address, address + bytes) of shared memory, `bytes` aligned, for t's current
// instruction.
char* shared_bytes(const Thread& t, uint32_t address, uint32_t bytes);

// Fails unless p is a multiple of `alignment` and [p, p + bytes) lies in an allocation; checks the
// order too.
void check_global(Thread& t, const void* p, uint32_t bytes, uint32_t alignment,
                  GlobalAccess access);

}  // namespace rapt::emulator
