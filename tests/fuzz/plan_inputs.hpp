// Lengths and tables from raw bytes, mostly malformed, into plan().
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapt::test {

// Plans what the bytes say, on the CPU backend. Either plan() throws rapt::Error, or the batch is
// run with keys of zero and every row's lse must be the logarithm of the keys it sees. Aborts
// otherwise. True if it was run.
bool plan_bytes(const uint8_t* data, size_t size);

}  // namespace rapt::test
