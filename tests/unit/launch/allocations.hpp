// Counts what a thread allocates with operator new.
#pragma once

#include <cstdint>

namespace rapt {

int64_t num_allocations();

}  // namespace rapt
