// The emulated instructions, as the wrappers in ptx/ call them. Addresses of shared memory are
// those of shared_address(). Each takes the line it stands in, for reports.
#pragma once

#include <cstdint>

#include "emulator/access.hpp"

// Images of the driver call them (driver/).
#pragma GCC visibility push(default)

namespace rapt::emulator {

struct Indices {
  uint32_t thread;
  uint32_t block_x, block_y, block_z;
  uint32_t grid_x;
};
Indices indices();

// Meetings of a warp's lanes (meeting.cpp).
uint32_t shuffle(uint32_t value, uint32_t source_lane, Location at);
bool any_lane(bool predicate, Location at);
void sync_warp(Location at);

// Barriers of a block's threads (barrier.cpp): all threads, or a number of them.
void sync_block(Location at);
void sync_named(uint32_t id, uint32_t threads, Location at);
void arrive_named(uint32_t id, uint32_t threads, Location at);

// Launches follow each other (meeting.cpp): nothing to wait for.
void wait_for_previous_kernel(Location at);

// Loads and stores (memory_access.cpp). bytes is 4 or 16.
void* shared_base();
uint32_t shared_address(const void* p);
void load_shared(uint32_t address, void* to, uint32_t bytes, Location at);
void store_shared(uint32_t address, const void* from, uint32_t bytes, Location at);
void load_global(const void* p, void* to, uint32_t bytes, bool read_only, Location at);
void store_global(void* p, const void* from, uint32_t bytes, Location at);

// Asynchronous copies (copy_async.cpp).
void copy_async_16(uint32_t shared, const void* global, bool reads, Location at);
void copy_async_commit(Location at);
void copy_async_wait(uint32_t pending, Location at);

// mbarriers (mbarrier.cpp).
void barrier_init(uint32_t barrier, uint32_t arrivals, Location at);
void barrier_arrive(uint32_t barrier, uint32_t expect_bytes, Location at);
void barrier_wait(uint32_t barrier, uint32_t parity, Location at);
void fence_async_shared(Location at);

// Tensors (tensor_load.cpp, tensor_store.cpp). Coordinates are elements, innermost first; those
// past the map's rank are ignored.
void load_tensor(uint32_t shared, const void* map, uint32_t barrier, const int (&coordinates)[5],
                 Location at);
void store_tensor(const void* map, uint32_t shared, const int (&coordinates)[5], Location at);
void store_tensor_commit(Location at);
void store_tensor_wait(uint32_t pending, bool reads_only, Location at);

// Matrices (load_matrices.cpp, multiply.cpp).
void load_matrices(uint32_t (&r)[4], uint32_t shared, bool transposed, Location at);
void store_matrices(uint32_t shared, const uint32_t (&r)[4], Location at);
enum class ElementType { kBf16, kF16 };
// d[16 x 8 fragments] += a[16 x 16] b[16 x 8 fragments], as that many products of mma.m16n8k16.
void multiply(ElementType type, float (*d)[4], const uint32_t (&a)[4], const uint32_t (*b)[2],
              int fragments, Location at);

// Products of a warpgroup (warpgroup.cpp): d[64 x columns] = a[64 x 16] b[16 x columns] (+ d).
struct WarpgroupProduct {
  ElementType type;
  int columns;  // a multiple of 8 up to 256
  bool accumulate;
  bool a_in_registers;
  bool transpose_a,
      transpose_b;  // in shared memory rows, columns are contiguous instead of the depth
  uint64_t a, b;    // descriptors; a is 0 if it is in registers

  bool operator==(const WarpgroupProduct& other) const = default;
};
void warpgroup_multiply(const WarpgroupProduct& what, float* d, const uint32_t* a_registers,
                        Location at);
void warpgroup_fence(Location at);
void warpgroup_commit(Location at);
void warpgroup_wait(uint32_t pending, Location at);
void set_max_registers(uint32_t count, Location at);

// Between blocks (atomic.cpp).
uint32_t atomic_add(uint32_t* p, uint32_t value, Location at);
void fence_device(Location at);

}  // namespace rapt::emulator

#pragma GCC visibility pop
