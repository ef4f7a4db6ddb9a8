// Fills a SimdTable from the simd header included before.
#pragma once

#include "../simd_table.hpp"

namespace rapt::test {
namespace {

using namespace rapt::cpu;

// y = f(x), whole vectors, then the tail through masks.
template <typename From, typename To, typename Function>
void map(const From* x, To* y, int n, Function f) {
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, f(load(x + i)));
  if (i < n) store(y + i, f(load(x + i, first_lanes(n - i))), first_lanes(n - i));
}
inline Vec same(Vec x) {
  return x;
}
template <typename T>
const T* as(const uint16_t* p) {
  return reinterpret_cast<const T*>(p);
}
template <typename T>
T* as(uint16_t* p) {
  return reinterpret_cast<T*>(p);
}

constexpr SimdTable table_for(CpuIsa isa) {
  return {
      .isa = isa,
      .width = kWidth,
      .exp2_accurate = [](const float* x, float* y, int n) { map(x, y, n, exp2_accurate); },
      .exp2_fast = [](const float* x, float* y, int n) { map(x, y, n, exp2_fast); },
      .tanh = [](const float* x, float* y, int n) { map(x, y, n, cpu::tanh); },
      .round_nearest = [](const float* x, float* y, int n) { map(x, y, n, round_nearest); },
      .from_half = [](const uint16_t* x, float* y, int n) { map(as<Half>(x), y, n, same); },
      .from_bfloat = [](const uint16_t* x, float* y, int n) { map(as<BFloat>(x), y, n, same); },
      .to_half = [](const float* x, uint16_t* y, int n) { map(x, as<Half>(y), n, same); },
      .to_bfloat = [](const float* x, uint16_t* y, int n) { map(x, as<BFloat>(y), n, same); },
      .reduce_add = [](const float* x) { return cpu::reduce_add(load(x)); },
      .reduce_max = [](const float* x) { return cpu::reduce_max(load(x)); },
      .transpose =
          [](float* x) {
            Vec r[kWidth];
            for (int i = 0; i < kWidth; i++) r[i] = load(x + i * kWidth);
            cpu::transpose(r);
            for (int i = 0; i < kWidth; i++) store(x + i * kWidth, r[i]);
          },
      .masked_copy = [](const float* x, float* y,
                        uint32_t bits) { store(y, load(x, lanes_of(bits)), lanes_of(bits)); },
  };
}

}  // namespace
}  // namespace rapt::test
