#include "emulator/warpgroup.hpp"

#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/meeting.hpp"
#include "emulator/shared_matrix.hpp"

namespace rapt::emulator {

namespace {

constexpr uint32_t kWarpgroupWarps = 4;

ProductQueue& own_products() {
  Warp& own = *self->warp;
  if (own.products) return *own.products;
  const uint32_t first = own.index / kWarpgroupWarps * kWarpgroupWarps;
  std::shared_ptr<std::vector<WarpgroupProduct>> history;
  std::shared_ptr<std::vector<std::unique_ptr<ConvertedB>>> converted;
  for (const Warp& warp : own.block->warps) {
    if (!warp.products) continue;
    converted = warp.products->converted;
    if (warp.index >= first && warp.index < first + kWarpgroupWarps)
      history = warp.products->history;
  }
  own.products = std::make_shared<ProductQueue>();
  own.products->history = history ? history : std::make_shared<std::vector<WarpgroupProduct>>();
  own.products->converted =
      converted ? converted
                : std::make_shared<std::vector<std::unique_ptr<ConvertedB>>>(kConvertedSlots);
  return *own.products;
}

// Registers may not change between a fence and the first product that reads them.
void check_fenced(ProductQueue& queue, const void* registers, int count, const char* what) {
  constexpr size_t kRemembered = 64;  // frames come and go
  auto& safe = queue.safe[self->lane];
  for (const SafeRegisters& known : safe) {
    if (known.registers != registers) continue;
    if (known.count != count || std::memcmp(known.values, registers, 4 * count) != 0)
      fail_in(*self,
              concat("the registers of ", what, " changed since the last warpgroup_fence()"));
    return;
  }
  if (safe.size() == kRemembered) safe.erase(safe.begin());
  SafeRegisters& added = safe.emplace_back(SafeRegisters{registers, count, {}});
  std::memcpy(added.values, registers, 4 * count);
}

Product& new_product(ProductQueue& queue, const WarpgroupProduct& what, const float* d,
                     uint32_t number) {
  if (number == queue.history->size()) queue.history->push_back(what);
  if (!((*queue.history)[number] == what))
    fail_in(*self, "the warps of the warpgroup issue different products");
  Product product = {};
  product.what = what;
  product.origin = self->now;
  product.group = queue.groups[self->lane];
  for (const auto& accumulators : queue.in_flight)
    if (accumulators->registers[self->lane] == d) product.accumulators = accumulators;
  if (!product.accumulators) {
    product.accumulators = std::make_shared<Accumulators>();
    product.accumulators->columns = what.columns;
    queue.in_flight.push_back(product.accumulators);
  }
  product.accumulators->group = product.group;
  return queue.products.emplace_back(std::move(product));
}

void join_accumulators(ProductQueue& queue, const Product& product, float* d) {
  Accumulators& accumulators = *product.accumulators;
  const uint32_t lane = self->lane;
  if (!accumulators.registers[lane]) {  // the first product on these registers
    if (product.what.accumulate)
      check_fenced(queue, d, product.what.columns / 2, "the accumulators");
    accumulators.registers[lane] = d;
    accumulators.for_registers(static_cast<int>(lane), [](float& in_register, float& sum) {
      sum = in_register;
      in_register = __builtin_bit_cast(float, kInFlight);
    });
  }
  if (accumulators.registers[lane] != d || accumulators.columns != product.what.columns)
    fail_in(*self, "accumulators in flight overlap");
}

}  // namespace

void warpgroup_multiply(const WarpgroupProduct& what, float* d, const uint32_t* a_registers,
                        Location at) {
  const Instruction instruction("wgmma.mma_async", at);
  require_capability(90, 90);
  ProductQueue& queue = own_products();
  const uint32_t lane = self->lane;
  if (!queue.fenced[lane]) fail_in(*self, "no warpgroup_fence() before the first product");
  if (SharedMatrix::has_base_offset(what.a) || SharedMatrix::has_base_offset(what.b))
    fail_in(*self, "descriptors with a base offset are not emulated");
  const uint32_t number = queue.issued[lane]++;
  if (number < queue.executed) fail_in(*self, "the lanes issue different products");
  const size_t place = number - queue.executed;
  Product& product =
      place == queue.products.size() ? new_product(queue, what, d, number) : queue.products[place];
  if (!(product.what == what) || product.group != queue.groups[lane])
    fail_in(*self, "the lanes issue different products");
  join_accumulators(queue, product, d);
  if (a_registers) {
    check_fenced(queue, a_registers, 4, "a");
    product.a_registers[lane] = a_registers;
    std::memcpy(product.a_issued[lane], a_registers, sizeof product.a_issued[lane]);
  }
  product.issue.add(*self);
  product.lanes |= 1u << lane;
  if (product.lanes == kAllLanes && grid->happens_early())
    execute_products(*self->warp, product.group + 1);
}

void warpgroup_fence(Location at) {
  const Instruction instruction("wgmma.fence", at);
  require_capability(90, 90);
  ProductQueue& queue = own_products();
  queue.fenced[self->lane] = true;
  for (SafeRegisters& safe : queue.safe[self->lane])
    std::memcpy(safe.values, safe.registers, 4 * safe.count);
}

void warpgroup_commit(Location at) {
  const Instruction instruction("wgmma.commit_group", at);
  require_capability(90, 90);
  ProductQueue& queue = own_products();
  if (++queue.groups[self->lane] > queue.group_ends.size())
    queue.group_ends.push_back(queue.issued[self->lane]);
}

void warpgroup_wait(uint32_t pending, Location at) {
  const Instruction instruction("wgmma.wait_group", at);
  require_capability(90, 90);
  meet(Aligned::kYes, {.number = pending}, [&](const Brought*) {
    ProductQueue& queue = own_products();
    Warp& warp = *self->warp;
    for (int lane = 1; lane < kLanes; ++lane)
      if (queue.issued[lane] != queue.issued[0] || queue.groups[lane] != queue.groups[0])
        fail_in(*self, "the lanes have issued or committed different numbers of products");
    if (queue.groups[0] <= pending) return;
    const uint32_t over = queue.groups[0] - pending;
    execute_products(warp, over);
    retire_accumulators(warp, over);
    for (int lane = 0; lane < kLanes; ++lane)
      acquire_agent(warp.lanes[lane], warp.block->product_agent(warp), queue.group_ends[over - 1]);
  });
}

}  // namespace rapt::emulator
