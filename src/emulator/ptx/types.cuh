// What device text is written in, for the host's compiler: the names of src/kernels/ptx/types.cuh.
#pragma once
#include "emulator/access.hpp"

#define DEVICE static inline __attribute__((always_inline))
#define METHOD inline __attribute__((always_inline))
#define GLOBAL inline
#define LAUNCH_BOUNDS(...)
#define GRID_CONSTANT

namespace rapt::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// Where an instruction stands: a last argument that the device's wrappers don't have.
using emulator::Location;

struct alignas(16) Quad {
  u32 x, y, z, w;
};

}  // namespace rapt::device
