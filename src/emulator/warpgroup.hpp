// wgmma: asynchronous products of four warps, each of which multiplies its 16 rows on its own here.
//
// A product is only noted when it is issued; it reads its operands when the warp waits for its
// group (late) or when its last lane has issued it (early). From issue to wait the accumulator
// registers hold a poison NaN, and the sums are kept here as a plain matrix.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "emulator/order.hpp"
#include "emulator/product.hpp"

namespace rapt::emulator {

constexpr uint32_t kInFlight = 0x7FBADBAD;  // a NaN

struct Accumulators {
  float* registers[kLanes] = {};
  int columns = 0;
  uint32_t group = 0;  // of the last product
  float sums[kProductRows * kMaxProductColumns];

  template <class Visit>
  void for_registers(int lane, Visit&& visit) {  // visit(register, its sum)
    for_d_fragment(lane, columns, [&](int i, int row, int column) {
      visit(registers[lane][i], sums[row * columns + column]);
    });
  }
};

struct Product {
  WarpgroupProduct what;
  Origin origin;
  uint32_t group;
  uint32_t lanes = 0;  // that have issued it
  std::shared_ptr<Accumulators> accumulators;
  const uint32_t* a_registers[kLanes];
  uint32_t a_issued[kLanes][4];
  Issue issue;
};

// Registers that products read, and their values when they were last safe to read: at a
// warpgroup_fence(), or as products left them.
struct SafeRegisters {
  const void* registers;
  int count;
  uint32_t values[kMaxProductColumns / 2];
};

// The b operand of a product as floats, kept because all warps use the same.
struct ConvertedB {
  WarpgroupProduct what = {};
  bool filled = false;
  uint16_t raw[kProductDepth * kMaxProductColumns];  // in the order it was read
  float values[kProductDepth * kMaxProductColumns];  // [k][column]
};
constexpr uint64_t kConvertedSlots = 64;

// A warp's products.
struct ProductQueue {
  std::deque<Product> products;  // not executed yet
  uint32_t executed = 0;
  uint32_t issued[kLanes] = {}, groups[kLanes] = {};  // products issued, groups committed
  std::vector<uint32_t> group_ends;  // products issued when each group was committed
  bool fenced[kLanes] = {};
  std::vector<SafeRegisters> safe[kLanes];
  std::vector<std::shared_ptr<Accumulators>> in_flight;
  // What the four warps of the group issued, which must be the same.
  std::shared_ptr<std::vector<WarpgroupProduct>> history;
  // By descriptor; one for the block.
  std::shared_ptr<std::vector<std::unique_ptr<ConvertedB>>> converted;
};

// Executes the products of the first `groups` groups that all lanes have issued.
void execute_products(Warp& warp, uint32_t groups);
// Puts the sums of these groups into registers.
void retire_accumulators(Warp& warp, uint32_t groups);

}  // namespace rapt::emulator
