// Shapes of tiles, for AMX and for its stand-in.
#pragma once

namespace rapt::cpu {
namespace {

constexpr int kTileRows = 16, kTileBytes = 64;  // at most: 16 floats, or 16 pairs of bf16, a row

struct TileShape {
  int rows = kTileRows, row_bytes = kTileBytes;
};

}  // namespace
}  // namespace rapt::cpu
