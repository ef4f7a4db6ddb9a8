// The first page id, or slot, that would lead a kernel out of the cache: for each warp's share of
// them one answer, so that nothing need be cleared before or agreed on between blocks.
#pragma once

#include "abi/attention.hpp"
#include "abi/check_indices.hpp"
#include "ptx/copy.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

// All lanes of a warp: of positions [begin, end), in order, the first whose value is outside
// [least, most].
template <class ValueOf>
DEVICE void find_bad_index(i64 begin, i64 end, const ValueOf& value_of, i64 least, i64 most,
                           BadIndex* found) {
  const int lane = static_cast<int>(lane_index());
  for (i64 first = begin; first < end; first += kWarpLanes) {
    const i64 position = first + lane;
    const i64 value = position < end ? value_of(position) : least;
    const bool bad = value < least || value > most;
    if (!any_lane(bad)) continue;
    int lowest = 0;
    while (!shuffle(bad, lowest)) lowest++;
    if (lane == lowest) *found = {position, value};
    return;
  }
  if (lane == 0) *found = {-1, 0};
}

DEVICE void check_page_ids(const CheckPageIdsParams& params) {
  const int index = static_cast<int>(block_index_x() * kCheckWarps + warp_index());
  if (index >= params.num_requests) return;
  const AttentionRequest request = params.requests[index];
  const i64 num_entries = (request.kv_len + params.page_size - 1) / params.page_size;
  find_bad_index(
      0, num_entries,
      [&](i64 entry) -> i64 {
        return load_global_i32(params.page_ids + request.first_page + entry);
      },
      0, params.num_pages - 1, params.found + index);
}

// A warp's share of an array's indices.
template <class ValueOf>
DEVICE void check_share(i64 num_indices, const ValueOf& value_of, i64 least, i64 most,
                        BadIndex* found) {
  const i64 index = i64{block_index_x()} * kCheckWarps + warp_index();
  const i64 begin = index * kCheckedSlots;
  if (begin >= num_indices) return;
  const i64 end = begin + kCheckedSlots < num_indices ? begin + kCheckedSlots : num_indices;
  find_bad_index(begin, end, value_of, least, most, found + index);
}

DEVICE void check_slots(const CheckSlotsParams& params) {
  constexpr i64 kLeast = -0x7fffffffffffffff - 1;  // negative slots are not written
  check_share(
      params.num_slots, [&](i64 at) { return params.slots[at]; }, kLeast, params.end - 1,
      params.found);
}

DEVICE void check_positions(const CheckPositionsParams& params) {
  check_share(
      params.num_positions,
      [&](i64 at) -> i64 {
        if (params.slots && params.slots[at] < 0) return 0;
        return params.position_bytes == 8 ? static_cast<const i64*>(params.positions)[at]
                                          : static_cast<const int*>(params.positions)[at];
      },
      0, params.end - 1, params.found);
}

}  // namespace rapt::device
