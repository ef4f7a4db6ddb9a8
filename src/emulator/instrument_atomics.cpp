// -fsanitize=thread turns atomics into calls too. Device text has none of C++'s, but the host code
// in its source may, in inline functions of libraries: here they are what they were.
#include <cstdint>

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
extern "C" {
#define RAPT_EMULATOR_UPDATE(bits, name, Word)                           \
  Word __tsan_atomic##bits##_##name(volatile Word* p, Word value, int) { \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                  \
  }
#define RAPT_EMULATOR_COMPARE(bits, strength, Word)                                        \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile Word* p, Word* expected, \
                                                         Word value, int, int) {           \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                  \
  }
#define RAPT_EMULATOR_ATOMICS(bits, Word)                                  \
  Word __tsan_atomic##bits##_load(const volatile Word* p, int) {           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                           \
  }                                                                        \
  void __tsan_atomic##bits##_store(volatile Word* p, Word value, int) {    \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                          \
  }                                                                        \
  Word __tsan_atomic##bits##_exchange(volatile Word* p, Word value, int) { \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                \
  }                                                                        \
  RAPT_EMULATOR_UPDATE(bits, fetch_add, Word)                              \
  RAPT_EMULATOR_UPDATE(bits, fetch_sub, Word)                              \
  RAPT_EMULATOR_UPDATE(bits, fetch_and, Word)                              \
  RAPT_EMULATOR_UPDATE(bits, fetch_or, Word)                               \
  RAPT_EMULATOR_UPDATE(bits, fetch_xor, Word)                              \
  RAPT_EMULATOR_COMPARE(bits, strong, Word)                                \
  RAPT_EMULATOR_COMPARE(bits, weak, Word)

RAPT_EMULATOR_ATOMICS(8, uint8_t)
RAPT_EMULATOR_ATOMICS(16, uint16_t)
RAPT_EMULATOR_ATOMICS(32, uint32_t)
RAPT_EMULATOR_ATOMICS(64, uint64_t)

#undef RAPT_EMULATOR_ATOMICS
#undef RAPT_EMULATOR_COMPARE
#undef RAPT_EMULATOR_UPDATE

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
