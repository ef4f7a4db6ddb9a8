#include "emulator/memory.hpp"

#include <cstring>

#include "core/check.hpp"

namespace rapt::emulator {

char* Memory::allocate_bytes(size_t bytes, std::string name, size_t alignment) {
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  auto mapping = std::make_unique<Mapping>(padded);
  std::memset(mapping->begin(), 0xFF, mapping->end() - mapping->begin());
  char* begin = mapping->end() - padded;
  owned_[reinterpret_cast<uintptr_t>(begin)] = {
      {std::move(name), begin, begin + bytes, begin + padded}, std::move(mapping)};
  return begin;
}

size_t Memory::release(const void* p) {
  const auto it = owned_.find(reinterpret_cast<uintptr_t>(p));
  if (it == owned_.end()) return 0;
  const Allocation& allocation = it->second.allocation;
  const auto bytes = static_cast<size_t>(allocation.end - allocation.begin);
  owned_.erase(it);
  return bytes;
}

const Allocation* Memory::at_or_before(const void* p) const {
  auto it = owned_.upper_bound(reinterpret_cast<uintptr_t>(p));
  return it == owned_.begin() ? nullptr : &std::prev(it)->second.allocation;
}

const Allocation* Memory::find(const void* p) const {
  const Allocation* before = at_or_before(p);
  return before && static_cast<const char*>(p) < before->padded_end ? before : nullptr;
}

std::string Memory::describe(const void* p) const {
  constexpr int64_t kFar = int64_t{1} << 32;
  const Allocation* before = at_or_before(p);
  if (!before) return concat(p);
  const int64_t past = static_cast<const char*>(p) - before->end;
  if (past >= kFar) return concat(p);
  return past >= 0
             ? concat(past, " bytes past the end of ", before->name)
             : concat("byte ", static_cast<const char*>(p) - before->begin, " of ", before->name);
}

}  // namespace rapt::emulator
