// The execution of a warp's products.
#include <cstring>

#include "core/check.hpp"
#include "emulator/memory_access.hpp"
#include "emulator/shared_matrix.hpp"
#include "emulator/warpgroup.hpp"

namespace rapt::emulator {

namespace {

// 16 bytes of an operand.
const char* read_chunk(const Warp& warp, const Product& product, uint32_t address) {
  const Thread& t = *self;
  const char* chunk = shared_bytes(t, address, 16);
  check_async_access(
      t, warp, product.issue, address, 16,
      {warp.products->executed + 1, warp.block->product_agent(warp), false, true, product.origin});
  return chunk;
}

void load_a_from_registers(const Product& product, float (*a)[kProductDepth]) {
  for (int lane = 0; lane < kLanes; ++lane)
    for_a_fragment(lane, [&](int i, int row, int column, int half) {
      const uint32_t pair = product.a_registers[lane][i];
      if (pair != product.a_issued[lane][i])
        fail_in(*self,
                concat("lane ", lane, " changed registers of a that a product in flight reads, ",
                       product.origin.describe()));
      a[row][column] = to_float(product.what.type, pair >> (16 * half));
    });
}

void load_a_from_shared(const Warp& warp, const Product& product, float (*a)[kProductDepth]) {
  const bool mn_major = product.what.transpose_a;
  const SharedMatrix matrix = SharedMatrix::decode(product.what.a, mn_major);
  const uint32_t first_row = warp.index % 4 * kProductRows;
  for (uint32_t outer = 0; outer < 16; ++outer)
    for (uint32_t inner = 0; inner < 16; inner += 8) {
      uint16_t chunk[8];
      const uint32_t address = mn_major ? matrix.chunk(first_row + inner, outer)
                                        : matrix.chunk(first_row + outer, inner);
      std::memcpy(chunk, read_chunk(warp, product, address), sizeof chunk);
      for (uint32_t i = 0; i < 8; ++i)
        (mn_major ? a[inner + i][outer] : a[outer][inner + i]) =
            to_float(product.what.type, chunk[i]);
    }
}

// b as floats. Reading and converting it costs more than multiplying, so it is converted anew only
// if its bytes have changed since the last product with this descriptor.
const float* load_b(const Warp& warp, const Product& product) {
  const WarpgroupProduct& what = product.what;
  auto& slot = (*warp.products->converted)[what.b * 0x9E3779B97F4A7C15ull >> 58];
  if (!slot) slot = std::make_unique<ConvertedB>();
  ConvertedB& b = *slot;
  bool same = b.filled && b.what.b == what.b && b.what.columns == what.columns &&
              b.what.type == what.type && b.what.transpose_b == what.transpose_b;
  b.what = what;
  b.filled = true;
  const SharedMatrix matrix = SharedMatrix::decode(what.b, what.transpose_b);
  const auto columns = static_cast<uint32_t>(what.columns);
  const uint32_t outer_size = what.transpose_b ? kProductDepth : columns;
  const uint32_t inner_size = what.transpose_b ? columns : kProductDepth;
  uint16_t* raw = b.raw;
  for (uint32_t outer = 0; outer < outer_size; ++outer)
    for (uint32_t inner = 0; inner < inner_size; inner += 8, raw += 8) {
      const uint32_t address =
          what.transpose_b ? matrix.chunk(inner, outer) : matrix.chunk(outer, inner);
      const char* chunk = read_chunk(warp, product, address);
      same = same && std::memcmp(raw, chunk, 16) == 0;
      if (!same) std::memcpy(raw, chunk, 16);
    }
  if (same) return b.values;
  for (uint32_t k = 0; k < kProductDepth; ++k)
    for (uint32_t column = 0; column < columns; ++column)
      b.values[k * columns + column] =
          to_float(what.type, what.transpose_b ? b.raw[k * columns + column]
                                               : b.raw[column * kProductDepth + k]);
  return b.values;
}

}  // namespace

void execute_products(Warp& warp, uint32_t groups) {
  ProductQueue& queue = *warp.products;
  for (; !queue.products.empty() && queue.products.front().group < groups;
       queue.products.pop_front()) {
    const Product& product = queue.products.front();
    if (product.lanes != kAllLanes) break;
    Accumulators& to = *product.accumulators;
    float a[kProductRows][kProductDepth];
    if (product.what.a_in_registers)
      load_a_from_registers(product, a);
    else
      load_a_from_shared(warp, product, a);
    const float* b = load_b(warp, product);
    if (!product.what.accumulate) std::fill_n(to.sums, kProductRows * product.what.columns, 0.f);
    multiply_add(to.sums, a, b, product.what.columns);
    ++queue.executed;
  }
}

void retire_accumulators(Warp& warp, uint32_t groups) {
  ProductQueue& queue = *warp.products;
  std::erase_if(queue.in_flight, [&](const std::shared_ptr<Accumulators>& finished) {
    if (finished->group >= groups) return false;
    for (int lane = 0; lane < kLanes; ++lane) {
      finished->for_registers(lane, [&](float& in_register, float sum) {
        if (__builtin_bit_cast(uint32_t, in_register) != kInFlight)
          fail_in(*self, concat("lane ", lane, " wrote to accumulators in flight"));
        in_register = sum;
      });
      for (SafeRegisters& safe : queue.safe[lane])
        if (safe.registers == finished->registers[lane])
          std::memcpy(safe.values, safe.registers, 4 * safe.count);
    }
    return true;
  });
}

}  // namespace rapt::emulator
