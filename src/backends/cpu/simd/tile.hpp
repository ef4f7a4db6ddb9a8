// AMX tiles: eight registers of 16 rows x 64 bytes. simd/tile_stand_in.hpp defines the same names
// in plain code.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "backends/cpu/simd/tile_shape.hpp"

namespace rapt::cpu {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Linux lets a process use tile registers only after it has asked.
inline bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
}

// Between these two the thread may use tiles 0 to 7, of these shapes.
inline void begin_tiles(const TileShape (&shapes)[8]) {
  TileConfig config;
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = static_cast<uint16_t>(shapes[i].row_bytes);
    config.rows[i] = static_cast<uint8_t>(shapes[i].rows);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
}
inline void end_tiles() {
  asm volatile("tilerelease");
}

template <int kTile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Rows `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
// The same, without taking the lines into L1.
template <int kTile>
inline void tile_load_past_l1(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}
// c[m][n] += sum over pairs k of a[m][k] . b[k][n]: a holds rows of bf16 pairs, b a row for each
// pair.
template <int kC, int kA, int kB>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace rapt::cpu
