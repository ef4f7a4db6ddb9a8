#include "emulator/instructions.hpp"
#include "emulator/memory_access.hpp"

namespace rapt::emulator {

uint32_t atomic_add(uint32_t* p, uint32_t value, Location at) {
  const Instruction instruction("atom.add", at);
  check_global(*self, p, sizeof *p, alignof(uint32_t), GlobalAccess::kAtomic);
  synchronize_at(*self, p);
  // No other thread runs until the next instruction.
  const uint32_t before = *p;
  *p = before + value;
  return before;
}

void fence_device(Location at) {
  const Instruction instruction("fence.acq_rel.gpu", at);
  fence_global(*self);
}

}  // namespace rapt::emulator
