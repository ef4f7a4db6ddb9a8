// What tensor loads and stores share: the rows of a box.
#pragma once

#include "emulator/machine.hpp"
#include "emulator/tensor_map.hpp"

namespace rapt::emulator {

// A box at a place of a tensor; parts of it may be outside, where zeros are read and nothing is
// written.
struct Box {
  EncodedMap map;
  int at[EncodedMap::kMaxRank];  // elements

  uint32_t num_rows() const { return map.box_bytes() / map.row_bytes(); }
};

// One row of a box: the innermost dimension.
struct BoxRow {
  char* global;         // where byte 0 of the row is or would be; null if the row is outside
  uint32_t offset;      // of the row in the box, bytes
  uint32_t begin, end;  // bytes of the row that are inside
};
BoxRow box_row(const Box& box, uint32_t row);

// The box of an instruction of t, after checks of the map and of the shared address.
Box checked_box(const Thread& t, const void* map, const int (&at)[EncodedMap::kMaxRank],
                uint32_t shared);

// Tensor stores of a block that has ended happen now, at the latest.
void finish_tensor_stores(Block& block);

}  // namespace rapt::emulator
