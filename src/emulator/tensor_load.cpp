// TMA loads: operations of their own, which happen in parts whenever the scheduler likes. Nothing
// but the mbarrier says that one is over.
#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/mbarrier.hpp"
#include "emulator/memory_access.hpp"
#include "emulator/tensor_copy.hpp"

namespace rapt::emulator {

BoxRow box_row(const Box& box, uint32_t row) {
  const EncodedMap& map = box.map;
  BoxRow out = {map.base, row * map.row_bytes(), 0, 0};
  for (int i = 1; i < map.rank; ++i) {
    const int64_t x = box.at[i] + static_cast<int64_t>(row % map.box[i]);
    row /= map.box[i];
    if (x < 0 || x >= map.dims[i]) out.global = nullptr;
    if (out.global) out.global += x * static_cast<int64_t>(map.strides[i]);
  }
  const int64_t begin = box.at[0], width = map.box[0], size = map.dims[0];
  out.begin = static_cast<uint32_t>(std::clamp<int64_t>(-begin, 0, width) * map.element_bytes);
  out.end = static_cast<uint32_t>(std::clamp<int64_t>(size - begin, 0, width) * map.element_bytes);
  if (out.begin >= out.end) out.global = nullptr;
  if (out.global) out.global += begin * map.element_bytes;
  return out;
}

Box checked_box(const Thread& t, const void* map, const int (&at)[EncodedMap::kMaxRank],
                uint32_t shared) {
  Box box;
  if (reinterpret_cast<uintptr_t>(map) % 64)
    fail_in(t, "the tensor map is not aligned to 64 bytes");
  std::memcpy(&box.map, map, sizeof box.map);
  if (box.map.mark != EncodedMap::kMark) fail_in(t, "this is no tensor map");
  std::memcpy(box.at, at, sizeof box.at);
  // A swizzled box begins where the pattern repeats.
  const uint32_t alignment = 128u << static_cast<int>(box.map.swizzle);
  if (shared % alignment)
    fail_in(t, concat("byte ", shared - kSharedBase, " of shared memory is not aligned to ",
                      alignment, " bytes"));
  for (uint32_t i = 0; i < box.map.box_bytes(); i += 16) shared_bytes(t, shared + i, 16);
  return box;
}

namespace {

struct TensorLoad final : AsyncOperation {
  Thread* thread;
  Origin origin;
  Box box;
  uint32_t shared, barrier;
  uint32_t agent, time;
  Issue issue;
  uint32_t next_row = 0;

  void load_row(uint32_t number) {
    const BoxRow row = box_row(box, number);
    for (uint32_t x = 0; x < box.map.row_bytes(); x += 16) {
      const uint32_t to = swizzle_address(shared + row.offset + x, box.map.swizzle);
      char* chunk = shared_bytes(*thread, to, 16);
      std::memset(chunk, 0, 16);
      const uint32_t begin = std::max(x, row.begin), end = std::min(x + 16, row.end);
      if (row.global && begin < end)
        std::memcpy(chunk + begin - x, row.global + begin, end - begin);
    }
  }
  bool step() override {
    if (next_row == 0)
      check_async_access(*thread, *thread->warp, issue, shared, box.map.box_bytes(),
                         {time, agent, true, true, origin});
    uint32_t end = box.num_rows();
    if (grid->asynchrony == Grid::Asynchrony::kMixed)
      end = std::min<uint32_t>(end, next_row + 1 + grid->random.next() % end);
    for (; next_row < end; ++next_row) load_row(next_row);
    if (next_row < box.num_rows()) {
      rank = grid->operation_rank();
      return false;
    }
    complete_bytes(*thread, barrier, box.map.box_bytes(), agent, time);
    return true;
  }
  std::string describe() const override { return origin.describe(); }
};

}  // namespace

void load_tensor(uint32_t shared, const void* map, uint32_t barrier, const int (&coordinates)[5],
                 Location at) {
  const Instruction instruction("cp.async.bulk.tensor.shared", at);
  require_capability(90);
  Block& block = *self->block;
  auto load = std::make_unique<TensorLoad>();
  load->thread = self;
  load->origin = self->now;
  load->box = checked_box(*self, map, coordinates, shared);
  load->shared = shared;
  check_mbarrier(*self, barrier);
  load->barrier = barrier;
  load->rank = grid->operation_rank();
  // The agent that was used least; loads are many, and an agent's are in order.
  const auto least = std::min_element(block.load_times.begin(), block.load_times.end());
  load->agent = block.load_agent(static_cast<uint32_t>(least - block.load_times.begin()));
  load->time = ++*least;
  load->issue.add(*self);
  ++self->time;  // what the thread reads from here on is not before the load
  block.operations.push_back(std::move(load));
}

}  // namespace rapt::emulator
