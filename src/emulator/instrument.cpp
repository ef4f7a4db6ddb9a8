// Ordinary loads and stores of device text. The compiler's -fsanitize=thread puts a call before
// each; here they are not ThreadSanitizer's but ours. They go to the thread's own stack, to shared
// memory or to allocations, and are checked there like the emulated instructions'; loads may also
// go elsewhere, since device text is called with parameters that live on the host's stack.
#include "core/check.hpp"
#include "emulator/order.hpp"

namespace rapt::emulator {

// t does an ordinary access.
static void check_ordinary(Thread& t, const void* p, size_t bytes, bool write) {
  const Block& block = *t.block;
  const char* at = static_cast<const char*>(p);
  if (at >= block.stacks->bottom(t.index) && at < block.stacks->top(t.index)) return;
  if (at >= block.shared && at < block.shared_pages.end()) {
    const auto offset = static_cast<uint32_t>(at - block.shared);
    if (offset + bytes > grid->shape.shared_bytes) {
      t.now.ordinary = true;
      fail_in(t, concat("byte ", offset, " is outside the ", grid->shape.shared_bytes,
                        " bytes of shared memory"));
    }
    check_shared_access(t, kSharedBase + offset, static_cast<uint32_t>(bytes), write, true);
    return;
  }
  if (const Allocation* allocation = grid->memory.find(p)) {
    if (at + bytes <= allocation->end) {
      check_global_access(t, *allocation, p, static_cast<uint32_t>(bytes),
                          write ? GlobalAccess::kStore : GlobalAccess::kLoad, true);
      return;
    }
  } else if (!write) {
    return;
  }
  t.now.ordinary = true;
  fail_in(t, concat(write ? "stores " : "loads ", bytes, " bytes at ", grid->memory.describe(p),
                    ", not inside its stack, shared memory or an allocation"));
}

static void check_access(const void* p, size_t bytes, bool write) {
  Thread* t = self;
  if (!t || t->in_emulator) return;
  t->in_emulator = true;
  check_ordinary(*t, p, bytes, write);
  t->in_emulator = false;
}

// Defines the function that the compiler calls `symbol`.
#define RAPT_EMULATOR_HOOK(name, symbol, ...)                                \
  __attribute__((visibility("default"))) void name(__VA_ARGS__) asm(symbol); \
  void name(__VA_ARGS__)
#define RAPT_EMULATOR_ACCESS(name, bytes, write)                            \
  RAPT_EMULATOR_HOOK(hook_##name##bytes, "__tsan_" #name #bytes, void* p) { \
    check_access(p, bytes, write);                                          \
  }
#define RAPT_EMULATOR_ACCESSES(bytes)                \
  RAPT_EMULATOR_ACCESS(read, bytes, false)           \
  RAPT_EMULATOR_ACCESS(write, bytes, true)           \
  RAPT_EMULATOR_ACCESS(unaligned_read, bytes, false) \
  RAPT_EMULATOR_ACCESS(unaligned_write, bytes, true) \
  RAPT_EMULATOR_ACCESS(volatile_read, bytes, false)  \
  RAPT_EMULATOR_ACCESS(volatile_write, bytes, true)

RAPT_EMULATOR_ACCESSES(1)
RAPT_EMULATOR_ACCESSES(2)
RAPT_EMULATOR_ACCESSES(4)
RAPT_EMULATOR_ACCESSES(8)
RAPT_EMULATOR_ACCESSES(16)
RAPT_EMULATOR_HOOK(hook_read_range, "__tsan_read_range", void* p, size_t bytes) {
  check_access(p, bytes, false);
}
RAPT_EMULATOR_HOOK(hook_write_range, "__tsan_write_range", void* p, size_t bytes) {
  check_access(p, bytes, true);
}
RAPT_EMULATOR_HOOK(hook_vptr_update, "__tsan_vptr_update", void*, void*) {}
RAPT_EMULATOR_HOOK(hook_vptr_read, "__tsan_vptr_read", void*) {}
RAPT_EMULATOR_HOOK(hook_func_entry, "__tsan_func_entry", void*) {}
RAPT_EMULATOR_HOOK(hook_func_exit, "__tsan_func_exit", ) {}
RAPT_EMULATOR_HOOK(hook_init, "__tsan_init", ) {}

#undef RAPT_EMULATOR_ACCESSES
#undef RAPT_EMULATOR_ACCESS
#undef RAPT_EMULATOR_HOOK

}  // namespace rapt::emulator
