#include "emulator/fiber.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace rapt::emulator {

#if defined(__x86_64__)

// Pushes what a callee must preserve, leaves the stack's pointer in *save, and does the reverse on
// the stack `load`. The floating-point control words are the same in all fibres.
extern "C" void rapt_emulator_switch_stack(void** save, void* load);
asm(R"(
.text
.type rapt_emulator_switch_stack, @function
rapt_emulator_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size rapt_emulator_switch_stack, .-rapt_emulator_switch_stack
)");

void Fiber::start(char*, char* top, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  auto slot = reinterpret_cast<uintptr_t*>(top);
  *--slot = 0;  // where entry would return to
  *--slot = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--slot = 0;
  stack_pointer_ = slot;
}

void Fiber::switch_to(Fiber& other) {
  rapt_emulator_switch_stack(&stack_pointer_, other.stack_pointer_);
}

#else

void Fiber::start(char* bottom, char* top, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = bottom;
  context_.uc_stack.ss_size = top - bottom;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Fiber::switch_to(Fiber& other) {
  swapcontext(&context_, &other.context_);
}

#endif

Stacks::Stacks(int count, size_t bytes)
    : count_(count),
      bytes_((bytes + 2 * Mapping::kPageBytes - 1) / Mapping::kPageBytes * Mapping::kPageBytes),
      stride_(bytes_ + Mapping::kPageBytes),
      all_(stride_ * count) {
  // The page above stack i is the one below stack i + 1.
  for (int i = 0; i < count; ++i) mprotect(end(i), Mapping::kPageBytes, PROT_NONE);
}

std::unique_ptr<Stacks> StackPool::take(int count, size_t bytes) {
  const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const auto& stacks) {
    return stacks->count() >= count && stacks->bytes() >= bytes;
  });
  if (found == idle_.end()) return std::make_unique<Stacks>(count, bytes);
  auto stacks = std::move(*found);
  idle_.erase(found);
  return stacks;
}

}  // namespace rapt::emulator
