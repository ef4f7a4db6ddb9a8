#include "backends/flash_attention/flash_attention_plan.hpp"

#include "core/check.hpp"

namespace rapt {

std::string FlashAttentionPlan::describe() const {
  std::string blocks, room;
  for (size_t i = 0; i < list.num_works.size(); i++)
    if (list.num_works[i])
      blocks += concat(list.num_works[i], " works of ", launches[i].tile_rows, " rows, ");
  if (envelope) {
    room = concat("; graph envelope of ", envelope->max_requests, " requests, ",
                  envelope->max_tokens, " tokens, ", envelope->query_len_bound(), " of a request, ",
                  envelope->max_kv_len, " keys:");
    for (const TileLaunch& launch : launches)
      if (launch.count) room += concat(" ", launch.count, " works of ", launch.tile_rows, " rows,");
    room += concat(" ", merge.count, " merges");
  }
  const int num_tokens =
      list.requests.empty() ? 0 : list.requests.back().query_start + list.requests.back().query_len;
  return concat("flash_attention 2: ", list.requests.size(), " requests, ", num_tokens,
                " tokens: ", blocks, list.num_merged_rows, " rows merged from ",
                list.num_partial_rows, " partial rows, workspace ", shape.workspace_bytes, " bytes",
                room);
}

}  // namespace rapt
