// A test's device memory. Kernels may access allocations and nothing else of the heap.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "emulator/mapping.hpp"

namespace rapt::emulator {

struct Allocation {
  std::string name;
  const char* begin;
  const char* end;
  const char* padded_end;  // no allocation begins before
};

class Memory {
 public:
  static constexpr size_t kLeastAlignment = 16;

  // `count` elements that start as 0xFF bytes, NaN in every floating-point format. The last one
  // ends at an unreadable page, give or take an alignment to 16 bytes, the least a kernel may rely
  // on. They live as long as this object, or until they are released.
  template <class T>
  std::span<T> allocate(size_t count, std::string name) {
    return {reinterpret_cast<T*>(allocate_bytes(count * sizeof(T), std::move(name))), count};
  }

  // The same as bytes, from an address of that alignment, a power of two up to a page's.
  char* allocate_bytes(size_t bytes, std::string name, size_t alignment = kLeastAlignment);
  // Ends the allocation that begins at p: accesses fault from now on. Its bytes; 0 where none does.
  size_t release(const void* p);

  // The allocation that holds p, itself or its padding, or null.
  const Allocation* find(const void* p) const;
  // An address in words that are the same in every process, where an allocation is near: which byte
  // of it, or how far behind it.
  std::string describe(const void* p) const;

 private:
  struct Owned {
    Allocation allocation;
    std::unique_ptr<Mapping> mapping;
  };

  const Allocation* at_or_before(const void* p) const;

  std::map<uintptr_t, Owned> owned_;  // by first byte
};

}  // namespace rapt::emulator
