#include "emulator/memory_access.hpp"

#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"

namespace rapt::emulator {

char* shared_bytes(const Thread& t, uint32_t address, uint32_t bytes) {
  const uint32_t offset = address - kSharedBase, size = grid->shape.shared_bytes;
  if (address % bytes)
    fail_in(t, concat("byte ", static_cast<int32_t>(offset), " of shared memory is not aligned to ",
                      bytes, " bytes"));
  if (address < kSharedBase || offset + bytes > size)
    fail_in(t, concat("byte ", static_cast<int32_t>(offset), " is outside the ", size,
                      " bytes of shared memory"));
  return t.block->shared + offset;
}

void check_global(Thread& t, const void* p, uint32_t bytes, uint32_t alignment,
                  GlobalAccess access) {
  if (reinterpret_cast<uintptr_t>(p) % alignment)
    fail_in(t, concat(grid->memory.describe(p), " is not aligned to ", alignment, " bytes"));
  if (bytes == 0) return;
  const Allocation* allocation = grid->memory.find(p);
  if (!allocation || static_cast<const char*>(p) + bytes > allocation->end)
    fail_in(t, concat(bytes, " bytes at ", grid->memory.describe(p), ", not inside an allocation"));
  check_global_access(t, *allocation, p, bytes, access);
}

Indices indices() {
  const BlockIndex& block = self->block->index;
  return {self->index, block.x, block.y, block.z, grid->shape.grid.x};
}

void* shared_base() {
  return self->block->shared;
}

uint32_t shared_address(const void* p) {
  const auto offset = static_cast<const char*>(p) - self->block->shared;
  if (offset < 0 || offset > static_cast<ptrdiff_t>(grid->shape.shared_bytes)) {
    self->in_emulator = true;
    fail_in(*self, "shared_address() of what is not in shared memory");
  }
  return kSharedBase + static_cast<uint32_t>(offset);
}

void load_shared(uint32_t address, void* to, uint32_t bytes, Location at) {
  const Instruction instruction("ld.shared", at);
  const char* from = shared_bytes(*self, address, bytes);
  check_shared_access(*self, address, bytes, false);
  std::memcpy(to, from, bytes);
}

void store_shared(uint32_t address, const void* from, uint32_t bytes, Location at) {
  const Instruction instruction("st.shared", at);
  char* to = shared_bytes(*self, address, bytes);
  check_shared_access(*self, address, bytes, true);
  std::memcpy(to, from, bytes);
}

void load_global(const void* p, void* to, uint32_t bytes, bool read_only, Location at) {
  const Instruction instruction(read_only ? "ld.global.nc" : "ld.global", at);
  check_global(*self, p, bytes, bytes,
               read_only ? GlobalAccess::kReadOnlyLoad : GlobalAccess::kLoad);
  std::memcpy(to, p, bytes);
}

void store_global(void* p, const void* from, uint32_t bytes, Location at) {
  const Instruction instruction("st.global", at);
  check_global(*self, p, bytes, bytes, GlobalAccess::kStore);
  std::memcpy(p, from, bytes);
}

}  // namespace rapt::emulator
