#include "emulator/memory.hpp"

#include <cstring>

#include "core/check.hpp"

namespace rapt::emulator {

char* Memory::allocate_bytes(size_t bytes, std::string name) {
  const size_t padded = (bytes + 15) / 16 * 16;
  auto mapping = std::make_unique<Mapping>(padded);
  std::memset(mapping->begin(), 0xFF, mapping->end() - mapping->begin());
  char* begin = mapping->end() - padded;
  owned_[reinterpret_cast<uintptr_t>(begin)] = {{std::move(name), begin, begin + bytes},
                                                std::move(mapping)};
  return begin;
}

const Allocation* Memory::at_or_before(const void* p) const {
  auto it = owned_.upper_bound(reinterpret_cast<uintptr_t>(p));
  return it == owned_.begin() ? nullptr : &std::prev(it)->second.allocation;
}

const Allocation* Memory::find(const void* p) const {
  const Allocation* before = at_or_before(p);
  return before && static_cast<const char*>(p) < before->end ? before : nullptr;
}

std::string Memory::describe(const void* p) const {
  const Allocation* before = at_or_before(p);
  if (!before) return concat(p);
  const auto past = static_cast<const char*>(p) - before->end;
  if (past < 0)
    return concat("byte ", static_cast<const char*>(p) - before->begin, " of ", before->name);
  return concat(p, ", ", past, " bytes past the end of ", before->name);
}

}  // namespace rapt::emulator
