// What device text is written in: sized integers and the marks of functions. Device text includes
// nothing but files below src/kernels, so that NVRTC takes it as it stands; src/emulator/ptx has
// files of the same names for the host's compiler.
#pragma once

#ifndef __CUDACC__
#error "device text belongs in folders of src/kernels, where ptx/ may be the emulator's"
#endif

#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__                  // a member function
#define GLOBAL __global__                                  // an entry
#define LAUNCH_BOUNDS(...) __launch_bounds__(__VA_ARGS__)  // threads a block, blocks an SM
#define GRID_CONSTANT __grid_constant__  // a parameter that stays where the driver put it

namespace rapt::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// The 16 bytes of the widest loads and stores.
struct alignas(16) Quad {
  u32 x, y, z, w;
};

}  // namespace rapt::device
