// -fsanitize=thread turns atomics into calls too. Device text has none of C++'s, but the host code
// in its source may, in inline functions of libraries: here they are what they were.
#include <cstdint>

namespace rapt::emulator {

// Defines the function that the compiler calls `symbol`.
#define RAPT_EMULATOR_HOOK(result, name, symbol, ...)                          \
  __attribute__((visibility("default"))) result name(__VA_ARGS__) asm(symbol); \
  result name(__VA_ARGS__)
#define RAPT_EMULATOR_UPDATE(bits, name)                                                 \
  RAPT_EMULATOR_HOOK(uint##bits##_t, hook_##name##bits, "__tsan_atomic" #bits "_" #name, \
                     volatile uint##bits##_t* p, uint##bits##_t value, int) {            \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                                  \
  }
#define RAPT_EMULATOR_COMPARE(bits, strength)                                                    \
  RAPT_EMULATOR_HOOK(                                                                            \
      bool, hook_compare_##strength##bits, "__tsan_atomic" #bits "_compare_exchange_" #strength, \
      volatile uint##bits##_t* p, uint##bits##_t* expected, uint##bits##_t value, int, int) {    \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,              \
                                       __ATOMIC_SEQ_CST);                                        \
  }
#define RAPT_EMULATOR_ATOMICS(bits)                                                          \
  RAPT_EMULATOR_HOOK(uint##bits##_t, hook_load##bits, "__tsan_atomic" #bits "_load",         \
                     const volatile uint##bits##_t* p, int) {                                \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                             \
  }                                                                                          \
  RAPT_EMULATOR_HOOK(void, hook_store##bits, "__tsan_atomic" #bits "_store",                 \
                     volatile uint##bits##_t* p, uint##bits##_t value, int) {                \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                          \
  RAPT_EMULATOR_HOOK(uint##bits##_t, hook_exchange##bits, "__tsan_atomic" #bits "_exchange", \
                     volatile uint##bits##_t* p, uint##bits##_t value, int) {                \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                  \
  }                                                                                          \
  RAPT_EMULATOR_UPDATE(bits, fetch_add)                                                      \
  RAPT_EMULATOR_UPDATE(bits, fetch_sub)                                                      \
  RAPT_EMULATOR_UPDATE(bits, fetch_and)                                                      \
  RAPT_EMULATOR_UPDATE(bits, fetch_or)                                                       \
  RAPT_EMULATOR_UPDATE(bits, fetch_xor)                                                      \
  RAPT_EMULATOR_COMPARE(bits, strong)                                                        \
  RAPT_EMULATOR_COMPARE(bits, weak)

RAPT_EMULATOR_ATOMICS(8)
RAPT_EMULATOR_ATOMICS(16)
RAPT_EMULATOR_ATOMICS(32)
RAPT_EMULATOR_ATOMICS(64)
RAPT_EMULATOR_HOOK(void, hook_thread_fence, "__tsan_atomic_thread_fence", int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
RAPT_EMULATOR_HOOK(void, hook_signal_fence, "__tsan_atomic_signal_fence", int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#undef RAPT_EMULATOR_ATOMICS
#undef RAPT_EMULATOR_COMPARE
#undef RAPT_EMULATOR_UPDATE
#undef RAPT_EMULATOR_HOOK

}  // namespace rapt::emulator
