#include "bench/compute_limits.hpp"

#include <cstring>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rapt::bench {
namespace {

// Each loop runs `rounds` times over more accumulators than the unit has latency, and returns the
// flops it did. `sink` keeps the compiler from dropping the work.
using Loop = double (*)(int64_t rounds, float& sink);

constexpr int64_t kRoundsPerLook = 2000;  // at the clock: 10 to 100 microseconds

// 16-byte vectors, which every 64-bit processor has.
double multiply_add(int64_t rounds, float& sink) {
  using Vector = float __attribute__((vector_size(16)));
  Vector sum[12], a = Vector{} + (1.0f + sink), b = Vector{} + 1e-9f;
  for (int i = 0; i < 12; i++) sum[i] = Vector{} + static_cast<float>(i);
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) sum[i] = sum[i] * a + b;
#if defined(__x86_64__)
    asm volatile("" : "+x"(a), "+x"(b));
#else
    asm volatile("" : "+w"(a), "+w"(b));
#endif
  }
  for (int i = 1; i < 12; i++) sum[0] += sum[i];
  sink = sum[0][0] * 1e-30f;
  return static_cast<double>(rounds) * 12 * 8;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double fma_avx512(int64_t rounds, float& sink) {
  __m512 sum[24], a = _mm512_set1_ps(1.0f + sink), b = _mm512_set1_ps(1e-9f);
  for (int i = 0; i < 24; i++) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
    asm volatile("" : "+v"(a), "+v"(b));
  }
  for (int i = 1; i < 24; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink = _mm512_cvtss_f32(sum[0]) * 1e-30f;
  return static_cast<double>(rounds) * 24 * 32;
}

__attribute__((target("avx2,fma"))) double fma_avx2(int64_t rounds, float& sink) {
  __m256 sum[12], a = _mm256_set1_ps(1.0f + sink), b = _mm256_set1_ps(1e-9f);
  for (int i = 0; i < 12; i++) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
    asm volatile("" : "+x"(a), "+x"(b));
  }
  for (int i = 1; i < 12; i++) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  sink = _mm256_cvtss_f32(sum[0]) * 1e-30f;
  return static_cast<double>(rounds) * 12 * 16;
}

__attribute__((target("avx512f,avx512bf16"))) double dot_bf16(int64_t rounds, float& sink) {
  __m512 sum[24];
  __m512i a = _mm512_set1_epi32(0x3f803f80 + (sink > 1)), b = _mm512_set1_epi32(0x2f802f80);
  for (int i = 0; i < 24; i++) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)a, (__m512bh)b);
    asm volatile("" : "+v"(a), "+v"(b));
  }
  for (int i = 1; i < 24; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink = _mm512_cvtss_f32(sum[0]) * 1e-30f;
  return static_cast<double>(rounds) * 24 * 64;
}

// Four tiles of normally distributed values: on zeros the unit draws less power, and the clock, so
// the peak, is 10 to 20 % higher than any real product sees.
struct alignas(64) NormalTiles {
  uint16_t tiles[4][16 * 32];
  NormalTiles() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto& tile : tiles)
      for (uint16_t& element : tile) {
        const float value = normal(random);
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        element = static_cast<uint16_t>(bits >> 16);
      }
  }
};

__attribute__((target("amx-tile,amx-bf16"))) double tile_bf16(int64_t rounds, float&) {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t columns[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; i++) config.columns[i] = 64, config.rows[i] = 16;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  syscall(SYS_arch_prctl, kRequestPermission, kTileData);
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  static const NormalTiles normal;
  _tile_loadd(4, normal.tiles[0], 64);
  _tile_loadd(5, normal.tiles[1], 64);
  _tile_loadd(6, normal.tiles[2], 64);
  _tile_loadd(7, normal.tiles[3], 64);
  for (int64_t r = 0; r < rounds; r++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(rounds) * 4 * 2 * 16 * 16 * 32;
}
#endif

Loop loop_of(Unit unit, CpuIsa isa) {
  if (!has(unit, isa)) return nullptr;
#if defined(__x86_64__)
  switch (unit) {
    case Unit::kFma:
      if (isa >= CpuIsa::kAvx512) return fma_avx512;
      return isa >= CpuIsa::kAvx2 ? fma_avx2 : multiply_add;
    case Unit::kBf16Dot:
      return dot_bf16;
    case Unit::kAmxTile:
      return tile_bf16;
  }
#endif
  return unit == Unit::kFma ? multiply_add : nullptr;
}

}  // namespace

const char* to_string(Unit unit) {
  switch (unit) {
    case Unit::kFma:
      return "fp32 FMA";
    case Unit::kBf16Dot:
      return "bf16 dot";
    case Unit::kAmxTile:
      return "AMX tile";
  }
  return "unknown";
}

bool has(Unit unit, CpuIsa isa) {
  switch (unit) {
    case Unit::kFma:
      return true;
    case Unit::kBf16Dot:
      return isa >= CpuIsa::kAvx512Bf16;
    case Unit::kAmxTile:
      return isa >= CpuIsa::kAmxBf16;
  }
  return false;
}

Unit unit_for(DType dtype, CpuIsa isa) {
  if (dtype != DType::kBFloat16) return Unit::kFma;
  for (const Unit unit : {Unit::kAmxTile, Unit::kBf16Dot})
    if (has(unit, isa)) return unit;
  return Unit::kFma;
}

double peak_flops(Unit unit, CpuIsa isa, Threads& threads, double seconds) {
  const Loop loop = loop_of(unit, isa);
  if (!loop) return 0;
  std::vector<double> flops(threads.size());
  const double took = threads.run([&](int32_t thread) {
    const double stop = seconds_now() + seconds;
    float sink = 0;
    do {
      flops[thread] += loop(kRoundsPerLook, sink);
    } while (seconds_now() < stop);
    flops[thread] += static_cast<double>(sink);
  });
  double sum = 0;
  for (const double thread : flops) sum += thread;
  return sum / took;
}

}  // namespace rapt::bench
