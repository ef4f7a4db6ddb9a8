// Ordinary loads and stores of device text. The compiler's -fsanitize=thread puts a call before
// each; here they are not ThreadSanitizer's but ours. They go to the thread's own stack, to shared
// memory or to allocations, and are checked there like the emulated instructions'; loads may also
// go where the launch says, to the parameters and constants of the text.
#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "emulator/order.hpp"

namespace rapt::emulator {

static bool is_readable(const char* at, size_t bytes) {
  const auto& readable = grid->options.readable;
  return readable.empty() || std::any_of(readable.begin(), readable.end(), [&](const auto& range) {
           return at >= range.data() && at + bytes <= range.data() + range.size();
         });
}

// t does an ordinary access.
static void check_ordinary(Thread& t, const void* p, size_t bytes, bool write) {
  const Block& block = *t.block;
  const char* at = static_cast<const char*>(p);
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
  } else if (!write && is_readable(at, bytes)) {
    return;
  }
  t.now.ordinary = true;
  fail_in(t, concat(write ? "stores " : "loads ", bytes, " bytes at ", grid->memory.describe(p),
                    ", not inside its stack, shared memory or an allocation"));
}

// Out of the way of most accesses, which are to the thread's own stack.
[[gnu::noinline]] static void check_elsewhere(Thread& t, const void* p, size_t bytes, bool write) {
  t.in_emulator = true;
  check_ordinary(t, p, bytes, write);
  t.in_emulator = false;
}

static inline void check_access(const void* p, size_t bytes, bool write) {
  Thread* t = self;
  if (!t || (p >= t->stack && p < t->stack_end) || t->in_emulator || !bytes) return;
  check_elsewhere(*t, p, bytes, write);
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
// Of clang's; gcc's calls of these functions are not instrumented.
RAPT_EMULATOR_HOOK(hook_memcpy, "__tsan_memcpy", void* to, const void* from, size_t bytes) {
  check_access(from, bytes, false);
  check_access(to, bytes, true);
  std::memcpy(to, from, bytes);
}
RAPT_EMULATOR_HOOK(hook_memmove, "__tsan_memmove", void* to, const void* from, size_t bytes) {
  check_access(from, bytes, false);
  check_access(to, bytes, true);
  std::memmove(to, from, bytes);
}
RAPT_EMULATOR_HOOK(hook_memset, "__tsan_memset", void* to, int value, size_t bytes) {
  check_access(to, bytes, true);
  std::memset(to, value, bytes);
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
