// What host code and the kernels that look for bad page ids and slots agree on.
#pragma once

namespace rapt::device {

struct AttentionRequest;  // of abi/attention.hpp

constexpr int kCheckWarps = 4;          // of a block
constexpr int kCheckedSlots = 1 << 10;  // of a warp

// The first index that is outside its bounds; position -1: none is.
struct BadIndex {
  long long position;
  long long value;
};

// A warp for each request. Positions are entries of the request's row of the page table.
struct CheckPageIdsParams {
  const AttentionRequest* requests;
  const int* page_ids;        // as in AttentionParams
  BadIndex* found = nullptr;  // [num_requests]
  int num_requests, num_pages;
  long long page_size;
};

// A warp for each kCheckedSlots. Positions are entries of `slots`, of which any may be negative.
struct CheckSlotsParams {
  const long long* slots;
  BadIndex* found = nullptr;  // [ceil(num_slots / kCheckedSlots)]
  long long num_slots;
  long long end;  // of the cache's slots
};

// A warp for each kCheckedSlots, too. Positions of tokens whose slot is negative are passed over.
struct CheckPositionsParams {
  const void* positions;      // of position_bytes each, 4 or 8
  const long long* slots;     // null: no position is passed over
  BadIndex* found = nullptr;  // [ceil(num_positions / kCheckedSlots)]
  long long num_positions;
  long long end;
  int position_bytes;
};

}  // namespace rapt::device
