// mbarrier objects, 8 bytes each of shared memory.
#pragma once

#include <string>

#include "emulator/machine.hpp"

namespace rapt::emulator {

// Asynchronous bytes have landed, written by `agent` at its `time`, issued by t.
void complete_bytes(const Thread& t, uint32_t address, uint32_t bytes, uint32_t agent,
                    uint32_t time);

// Fails unless t knows of an initialised mbarrier at the address.
void check_mbarrier(Thread& t, uint32_t address);

std::string describe_mbarrier(const Block& block, uint32_t address);

}  // namespace rapt::emulator
