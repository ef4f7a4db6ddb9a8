// A file of its own: seen together, gcc takes the pair below for a mistake.
#include "unit/launch/allocations.hpp"

#include <cstdlib>
#include <new>

static thread_local int64_t counted = 0;

int64_t rapt::num_allocations() {
  return counted;
}

void* operator new(size_t bytes) {
  counted++;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
