// Prefill on AMX tiles: the blocking of prefill-inl.hpp with 2 x 2 tiles for products. Panels are
// one tile wide, so that a tile of K or V is 1 KB of contiguous memory; two neighbouring panels
// make the 32 columns. Everything else, and every other dtype, is AVX-512's.
//
// Bytes at the tile peak (1024 flop a cycle), D = 128: four tile loads, 4 KB, for four products of
// 16 cycles; S is written and read in L2 at 4 bytes a (row, key), K and V stream from L2 once per
// kRowBlock rows, O once per block of keys. Seen on an Emerald Rapids: 2 threads 0.75 to 1.1
// TFLOP/s of 5.2 at the tiles' peak; softmax takes two fifths, scores and outputs a quarter each.
// Row blocks of 64 and 96 and key blocks of 128 to 512 lie within that machine's noise, 32 rows
// below it.
#pragma once

#include "backends/cpu/isa/tables.hpp"
#include "backends/cpu/pair_products-inl.hpp"
#include "backends/cpu/prefill-inl.hpp"

namespace rapt::cpu {
namespace {

struct AmxTile {
  static constexpr int kRows = 2 * kTileRows;
  static constexpr int kPacked = 16;
  static constexpr int kColumns = 2 * kPacked;
  static constexpr int kUnits = 16;  // of a step: 32 bf16
  static constexpr int kRowBlock = 64;

  static void multiply(const BFloat* a, int a_stride, const BFloat* b, int64_t b_panel, int units,
                       float* c, int c_stride) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    products<true>(a, a_stride, b, b_panel, units);
    store_all<true>(c, c_stride);
  }

  static void accumulate(int columns, const BFloat* a, int a_stride, const BFloat* b,
                         int64_t b_panel, int units, float* c, int c_stride) {
    if (columns == kColumns)
      return accumulate_panels<true>(a, a_stride, b, b_panel, units, c, c_stride);
    accumulate_panels<false>(a, a_stride, b, b_panel, units, c, c_stride);
  }

 private:
  // Tiles 0 1 / 2 3 are c, 4 and 5 rows of a, 6 and 7 panels of b; kBoth: both panels.
  template <bool kBoth>
  static void accumulate_panels(const BFloat* a, int a_stride, const BFloat* b, int64_t b_panel,
                                int units, float* c, int c_stride) {
    const int64_t stride = int64_t{c_stride} * 4;
    tile_load<0>(c, stride);
    tile_load<2>(c + kTileRows * c_stride, stride);
    if constexpr (kBoth) {
      tile_load<1>(c + 16, stride);
      tile_load<3>(c + kTileRows * c_stride + 16, stride);
    }
    products<kBoth>(a, a_stride, b, b_panel, units);
    store_all<kBoth>(c, c_stride);
  }

  template <bool kBoth>
  static void products(const BFloat* a, int a_stride, const BFloat* b, int64_t b_panel, int units) {
    for (int unit = 0; unit < units; unit += kUnits) {
      tile_load<4>(a + 2 * unit, int64_t{a_stride} * 2);
      tile_load<6>(b + 2 * unit * kPacked, kTileBytes);
      tile_load<5>(a + kTileRows * a_stride + 2 * unit, int64_t{a_stride} * 2);
      tile_dot_bf16<0, 4, 6>();
      tile_dot_bf16<2, 5, 6>();
      if constexpr (kBoth) {
        tile_load<7>(b + b_panel + 2 * unit * kPacked, kTileBytes);
        tile_dot_bf16<1, 4, 7>();
        tile_dot_bf16<3, 5, 7>();
      }
    }
  }

  template <bool kBoth>
  static void store_all(float* c, int c_stride) {
    const int64_t stride = int64_t{c_stride} * 4;
    tile_store<0>(c, stride);
    tile_store<2>(c + kTileRows * c_stride, stride);
    if constexpr (kBoth) {
      tile_store<1>(c + 16, stride);
      tile_store<3>(c + kTileRows * c_stride + 16, stride);
    }
  }
};

struct AmxProducts : PairProducts {
  using Tile = AmxTile;
};

inline void amx_prefill(const Problem& problem, const Request& request, const Work& work,
                        const Partials& partials, std::byte* scratch) {
  if (problem.dtype != DType::kBFloat16 || !tiles_permitted())
    return kAvx512Bf16Kernels.prefill(problem, request, work, partials, scratch);
  begin_tiles();
  prefill_rows<BFloat, AmxProducts>(problem, request, work, partials, scratch);
  end_tiles();
}

inline void amx_decode(const Problem& problem, const Request& request, const Work& work,
                       const Partials& partials, std::byte* scratch) {
  kAvx512Bf16Kernels.decode(problem, request, work, partials, scratch);
}

inline size_t amx_scratch_bytes(const Problem& problem) {
  return larger(PrefillScratch<AmxProducts>(problem, nullptr).bytes,
                kAvx512Bf16Kernels.scratch_bytes(problem));
}

}  // namespace
}  // namespace rapt::cpu
