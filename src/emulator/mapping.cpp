#include "emulator/mapping.hpp"

#include <sys/mman.h>

#include <new>

namespace rapt::emulator {

Mapping::Mapping(size_t bytes)
    : total_bytes_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes + 2 * kPageBytes) {
  void* base = mmap(nullptr, total_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(base);
  mprotect(base_, kPageBytes, PROT_NONE);
  mprotect(end(), kPageBytes, PROT_NONE);
}

Mapping::~Mapping() {
  munmap(base_, total_bytes_);
}

}  // namespace rapt::emulator
