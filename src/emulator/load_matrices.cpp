#include <cstring>

#include "emulator/instructions.hpp"
#include "emulator/meeting.hpp"
#include "emulator/memory_access.hpp"

namespace rapt::emulator {

namespace {

// What a lane brings: the address of a row, and its registers.
struct MatrixRows {
  uint32_t address;
  uint32_t* loaded;
  const uint32_t* stored;
};

void load_all(const Brought* values, bool transposed) {
  uint16_t matrices[4][8][8];
  for (int lane = 0; lane < kLanes; ++lane)
    self->block->shadow.prefetch(static_cast<const MatrixRows*>(values[lane].operands)->address -
                                 kSharedBase);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *static_cast<const MatrixRows*>(values[lane].operands);
    // The read of a row is its lane's, who must therefore be the one it is ordered for.
    Thread& t = self->warp->lanes[lane];
    const char* row = shared_bytes(t, operands.address, 16);
    check_shared_access(t, operands.address, 16, false);
    std::memcpy(matrices[lane / 8][lane % 8], row, 16);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *static_cast<const MatrixRows*>(values[lane].operands);
    const int major = lane / 4, minor = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const auto& m = matrices[i];
      const uint32_t low = transposed ? m[minor][major] : m[major][minor];
      const uint32_t high = transposed ? m[minor + 1][major] : m[major][minor + 1];
      operands.loaded[i] = low | high << 16;
    }
  }
}

void store_all(const Brought* values) {
  uint16_t matrices[4][8][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *static_cast<const MatrixRows*>(values[lane].operands);
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        matrices[i][row][column + half] = static_cast<uint16_t>(operands.stored[i] >> (16 * half));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *static_cast<const MatrixRows*>(values[lane].operands);
    Thread& t = self->warp->lanes[lane];
    char* row = shared_bytes(t, operands.address, 16);
    check_shared_access(t, operands.address, 16, true);
    std::memcpy(row, matrices[lane / 8][lane % 8], 16);
  }
}

}  // namespace

void load_matrices(uint32_t (&r)[4], uint32_t shared, bool transposed, Location at) {
  const Instruction instruction(transposed ? "ldmatrix.trans" : "ldmatrix", at);
  const MatrixRows operands{shared, r, nullptr};
  meet(Aligned::kYes, {.operands = &operands},
       [&](const Brought* values) { load_all(values, transposed); });
}

void store_matrices(uint32_t shared, const uint32_t (&r)[4], Location at) {
  const Instruction instruction("stmatrix", at);
  require_capability(90);
  const MatrixRows operands{shared, nullptr, r};
  meet(Aligned::kYes, {.operands = &operands}, store_all);
}

}  // namespace rapt::emulator
