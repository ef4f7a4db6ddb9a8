// Loops that are gone before the compiler decides what lives in registers: an array of vectors that
// a loop indexes stays in memory.
#pragma once

#include <type_traits>
#include <utility>

// On what must vanish into its caller to keep its vectors in registers. With a sanitizer's checks
// such functions grow so large that a file takes minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RAPT_ALWAYS_INLINE
#else
#define RAPT_ALWAYS_INLINE __attribute__((always_inline))
#endif

namespace rapt::cpu {
namespace {

// body(i) for the constants i in [0, kCount).
template <int kCount, typename Body>
RAPT_ALWAYS_INLINE inline void unroll(const Body& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) RAPT_ALWAYS_INLINE {
    (body(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

}  // namespace
}  // namespace rapt::cpu
