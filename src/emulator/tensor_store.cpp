// TMA stores: they read shared memory some time until the wait for reads, and write global memory
// some time until the full wait or the end of the block.
#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/memory_access.hpp"
#include "emulator/tensor_copy.hpp"

namespace rapt::emulator {

struct TensorStore {
  Origin origin;
  Box box;
  uint32_t shared;
  Issue issue;
  uint32_t time;   // of the warp's stores
  uint32_t group;  // of the thread's, from 1
  bool has_read = false;
  std::vector<char> data;
};

// The stores of one thread, in order.
struct StoreQueue {
  std::deque<TensorStore> stores;
  uint32_t issued = 0, groups_committed = 0;
};

namespace {

StoreQueue& own_stores() {
  if (!self->stores) self->stores = std::make_shared<StoreQueue>();
  return *self->stores;
}

void read(const Thread& t, TensorStore& store) {
  if (store.has_read) return;
  const uint32_t bytes = store.box.map.box_bytes();
  check_async_access(t, *t.warp, store.issue, store.shared, bytes,
                     {store.time, t.block->store_agent(*t.warp), false, true, store.origin});
  store.data.resize(bytes);
  for (uint32_t x = 0; x < bytes; x += 16) {
    const uint32_t from = swizzle_address(store.shared + x, store.box.map.swizzle);
    std::memcpy(&store.data[x], shared_bytes(t, from, 16), 16);
  }
  store.has_read = true;
}

void write(Thread& t, TensorStore& store) {
  read(t, store);
  for (uint32_t i = 0; i < store.box.num_rows(); ++i) {
    const BoxRow row = box_row(store.box, i);
    if (!row.global) continue;
    check_global(t, row.global + row.begin, row.end - row.begin, 1, GlobalAccess::kStore);
    std::memcpy(row.global + row.begin, &store.data[row.offset + row.begin], row.end - row.begin);
  }
}

}  // namespace

void store_tensor(const void* map, uint32_t shared, const int (&coordinates)[5], Location at) {
  const Instruction instruction("cp.async.bulk.tensor.global", at);
  require_capability(90);
  StoreQueue& queue = own_stores();
  TensorStore store;
  store.origin = self->now;
  store.box = checked_box(*self, map, coordinates, shared);
  store.shared = shared;
  store.issue.add(*self);
  store.time = ++queue.issued;
  store.group = queue.groups_committed + 1;
  queue.stores.push_back(std::move(store));
  if (grid->happens_early()) read(*self, queue.stores.back());
}

void store_tensor_commit(Location at) {
  const Instruction instruction("cp.async.bulk.commit_group", at);
  require_capability(90);
  ++own_stores().groups_committed;
}

void store_tensor_wait(uint32_t pending, bool reads_only, Location at) {
  const Instruction instruction("cp.async.bulk.wait_group", at);
  require_capability(90);
  StoreQueue& queue = own_stores();
  const uint32_t committed = queue.groups_committed;
  const uint32_t over = committed > pending ? committed - pending : 0;
  uint32_t time = 0;
  for (TensorStore& store : queue.stores) {
    if (store.group > over) break;
    read(*self, store);
    time = store.time;
  }
  if (!reads_only)
    for (; !queue.stores.empty() && queue.stores.front().group <= over; queue.stores.pop_front())
      write(*self, queue.stores.front());
  if (time) acquire_agent(*self, self->block->store_agent(*self->warp), time);
}

void finish_tensor_stores(Block& block) {
  if (!block.operations.empty())
    throw Failure(concat("block ", block.number, " ends while a tensor load is in flight: ",
                         block.operations.front()->describe()));
  for (Thread& t : block.threads) {
    if (!t.stores) continue;
    for (TensorStore& store : t.stores->stores) {
      if (!store.has_read)
        fail_in(t, "no wait covers its " + store.origin.describe() +
                       ", which may read shared memory of the next block");
      write(t, store);
    }
  }
}

}  // namespace rapt::emulator
