// Loops that are gone before the compiler decides what lives in registers: an array of vectors that
// a loop indexes stays in memory.
#pragma once

#include <type_traits>
#include <utility>

namespace rapt::cpu {
namespace {

// body(i) for the constants i in [0, kCount).
template <int kCount, typename Body>
[[gnu::always_inline]] inline void unroll(const Body& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

}  // namespace
}  // namespace rapt::cpu
