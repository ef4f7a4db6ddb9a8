// Attention by FlashAttention-2's algorithm (Dao 2023) with mma.sync and cp.async: SM80 and later.
//
// A thread block computes an AttentionWork for one KV head: up to tile_rows rows (query tokens
// times the query heads of a KV head) against a range of keys, in blocks of tile_keys. Each warp
// owns tile_rows / num_warps rows, whose outputs and scores of a block of keys live in its
// registers:
//
//   S [rows, keys] = Q [rows, Dqk] K^T,  O [rows, Dvo] += P V [keys, Dvo],
//
// while the next block's K and V are copied, or, where there is room for one block alone, this
// one's V and then the next one's K.
//
// Traffic of a block of keys: 2 * tile_keys * (Dqk + Dvo) bytes to shared memory, once for all
// rows. Keys that no row of the tile sees are not read: they become zeros.
#pragma once

#include "copy/tile.cuh"
#include "mma/tile_products.cuh"
#include "softmax/online.cuh"
#include "softmax/sink.cuh"
#include "variant/visible.cuh"

namespace rapt::device {

// Where the keys of a block lie, in bytes from AttentionParams::k and v, or kNoRow.
template <int kKeys>
struct KeyRows {
  i64 k[kKeys], v[kKeys];
};

template <AttentionVariant kVariant>
struct AttentionShared {
  Tile<kVariant.tile_rows, kVariant.head_dim_qk> q;
  // Of the current block of keys and the next, in turn.
  Tile<kVariant.tile_keys, kVariant.head_dim_qk> k[kVariant.stages];
  Tile<kVariant.tile_keys, kVariant.head_dim_vo> v[kVariant.stages];
  KeyRows<kVariant.tile_keys> rows[2];
  // What the block does. Read anew where it is used: registers are for sums.
  AttentionWork work;
  // Keys that rows of the work see by position: some row, every row, each.
  KeyRange seen, seen_by_all, seen_by[kVariant.tile_rows];
};

template <AttentionVariant kVariant, typename Element>
class AttentionBlock {
  static constexpr int kThreads = kVariant.num_threads(), kGroup = kVariant.group;
  static constexpr int kRows = kVariant.tile_rows, kKeys = kVariant.tile_keys;
  static constexpr int kDimQk = kVariant.head_dim_qk, kDimVo = kVariant.head_dim_vo;
  static constexpr int kWarpRows = kRows / kVariant.num_warps;
  static constexpr int kRowTiles = kWarpRows / 16, kKeyTiles = kKeys / 8;
  static constexpr int kStepsQk = ceil_div(kDimQk, 16), kOutTiles = 2 * ceil_div(kDimVo, 16);
  static constexpr int kPart = 2;  // result tiles whose right operand is in registers at a time
  static constexpr bool kInAdvance = kVariant.scores_in_advance, kTwo = kVariant.stages == 2;
  // Whether the stage is carried from block to block, and not found anew: faster where registers
  // allow it.
  static constexpr bool kAlternates = kTwo && kKeys >= 64;
  static constexpr bool kHalves = kVariant.halves_blocks();
  using TileQ = Tile<kRows, kDimQk>;
  using TileK = Tile<kKeys, kDimQk>;
  using TileV = Tile<kKeys, kDimVo>;
  static_assert(kRows % (16 * kVariant.num_warps) == 0 && kKeys % 16 == 0 && kKeys <= kThreads);

 public:
  METHOD AttentionBlock(const AttentionParams& params)
      : params_(params), work_(shared().work), request_(shared().work.of_request) {
    if (thread_index() == 0) {
      copy_to_shared(shared().work, params.works + block_index_y());
      const KeyRange top = visible(work_.row_begin), bottom = visible(work_.row_end - 1);
      shared().seen = {top.begin, bottom.end};
      shared().seen_by_all = {bottom.begin, top.end};
    }
    sync_block();
    q_ = shared_address(&shared().q), k_ = shared_address(&shared().k[0]),
    v_ = shared_address(&shared().v[0]);
    q_lane_ = left_lane<TileQ>(q_, warp_row());
  }

  METHOD void run() {
    if (work_.row_begin == work_.row_end) return;  // a graph has room for more works than there are
    const KeyRange keys = seen();
    if (keys.begin < keys.end) {
      int key = keys.begin / kKeys * kKeys;
      const int page = find_page(key), next_page = find_page(key + kKeys);
      const int first = kAlternates ? 0 : stage_of(key);
      copy_queries();
      keep(page, key, first);
      keep(next_page, key + kKeys, first ^ 1);
      sync_block();
      copy_keys(first);
      if (kTwo) copy_values(first);
      copy_async_commit();
      prepare();  // beside the copies
      for (int stage = 0; key < seen().end; key += kKeys, stage ^= 1) {
        copy_async_wait<0>();
        sync_block();  // the block is there, and no warp reads the one before
        if (kHalves && key + kKeys / 2 >= seen().end)
          multiply<kKeyTiles / 2>(key, stage);
        else
          multiply<kKeyTiles>(key, stage);
      }
    } else {
      prepare();
    }
    finish();
  }

 private:
  // What each row sees, and outputs of no key.
  METHOD void prepare() {
    for (int i = static_cast<int>(thread_index()); i < kRows; i += kThreads) {
      const int row = work_.row_begin + i;
      shared().seen_by[i] = row < work_.row_end ? visible(row) : KeyRange{0, 0};
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < kOutTiles; n++)
        out_[m][n][0] = out_[m][n][1] = out_[m][n][2] = out_[m][n][3] = 0;
  }

  // The block of keys that begins with `key`, or the first 8 * kTiles of it.
  template <int kTiles>
  METHOD void multiply(int key, int alternating) {
    const int stage = kAlternates ? alternating : stage_of(key);
    const bool last = key + kKeys >= seen().end;
    if (kTwo && !last) copy_keys(stage ^ 1);
    if (!kTwo || !last) copy_values(kTwo ? stage ^ 1 : stage);
    copy_async_commit();
    score<kTiles>(right_transposed_lane<TileK>(k_) + place(stage) * sizeof(TileK));
    weigh<kTiles>(key);
    if (!kTwo) {
      copy_async_wait<0>();
      sync_block();  // the values are there, and no warp reads the keys
      if (!last) copy_keys(stage ^ 1);
      copy_async_commit();
    }
    // Beside the products that need the fewest registers.
    const int page = find_page(key + 2 * kKeys);
    add_values<kTiles>(right_lane<TileV>(v_) + place(stage) * sizeof(TileV));
    keep(page, key + 2 * kKeys, stage);
  }

  static METHOD AttentionShared<kVariant>& shared() {
    return *shared_base<AttentionShared<kVariant>>();
  }
  static METHOD KeyRange read(const KeyRange& range) {
    return {static_cast<int>(load_shared_4(shared_address(&range.begin))),
            static_cast<int>(load_shared_4(shared_address(&range.end)))};
  }
  static METHOD KeyRange seen() {
    return read(shared().seen);
  }
  METHOD int warp_row() const {
    return static_cast<int>(warp_index()) * kWarpRows;
  }
  // Row of the tile, and of the work, that half `half` of row tile m is, in this lane.
  METHOD int tile_row(int m, int half) const {
    return warp_row() + 16 * m + 8 * half + static_cast<int>(lane_index()) / 4;
  }
  METHOD int row_of(int m, int half) const {
    return work_.row_begin + tile_row(m, half);
  }
  static METHOD int kv_head() {
    return static_cast<int>(block_index_x());
  }
  METHOD int query_head(int row) const {
    return kv_head() * kGroup + row % kGroup;
  }
  METHOD KeyRange visible(int row) const {
    return visible_keys(params_, work_, row / kGroup);
  }

  METHOD void copy_queries() {
    // Registers: what copies write is memory, after which all of it would be read anew.
    const int row_begin = work_.row_begin, row_end = work_.row_end;
    const int query_start = request_.query_start;
    const i64 q_token_stride = params_.q_token_stride;
    const auto offset = [=, this](int row) -> i64 {
      return (query_start + row / kGroup) * q_token_stride +
             query_head(row) * params_.q_head_stride;
    };
    copy_rows<kThreads, TileQ>(q_, params_.q, [&](int i, int further) -> i64 {
      // `further` is a constant, and mostly whole tokens.
      const int row = row_begin + i;
      const i64 there = offset(row + further % kGroup) + further / kGroup * q_token_stride;
      return there | (static_cast<i64>(row_end - 1 - row - further) & kNoRow);
    });
  }
  // Whether a query of the work sees the key: what none sees may hold anything, and a weight of 0
  // does not make nothing of it.
  METHOD bool seen_by_some(int key) const {
    for (int token = work_.row_begin / kGroup; token <= (work_.row_end - 1) / kGroup; token++) {
      const KeyRange seen = visible_keys(params_, work_, token);
      if (key >= seen.begin && key < seen.end && mask_bit(params_, request_, token, key))
        return true;
    }
    return false;
  }
  // The page of the key that this thread looks after in the block that begins with `key`; negative:
  // the key is not to be read. A page is a register to keep while a step is computed, what follows
  // from it is four.
  METHOD int find_page(int key) const {
    key += static_cast<int>(thread_index());
    const KeyRange keys = seen();
    if (static_cast<int>(thread_index()) >= kKeys || key < keys.begin || key >= keys.end) return -1;
    if (kVariant.custom_mask && !seen_by_some(key)) return -1;
    if constexpr (kVariant.page_size > 0)
      return load_global_i32(params_.page_ids + request_.first_page + key / kVariant.page_size);
    return 0;
  }
  METHOD void keep(int page, int key, int stage) {
    if (thread_index() >= kKeys) return;
    key += static_cast<int>(thread_index());
    i64 slot = static_cast<i64>(request_.kv_start) + key;
    if constexpr (kVariant.page_size > 0) slot = key % kVariant.page_size;
    const auto offset = [&](i64 page_stride, i64 token_stride, i64 head_stride) -> i64 {
      if (page < 0) return kNoRow;
      return page * page_stride + slot * token_stride + kv_head() * head_stride;
    };
    shared().rows[stage].k[thread_index()] =
        offset(params_.k_page_stride, params_.k_token_stride, params_.k_head_stride);
    shared().rows[stage].v[thread_index()] =
        offset(params_.v_page_stride, params_.v_token_stride, params_.v_head_stride);
  }
  static METHOD int stage_of(int key) {
    return static_cast<int>(static_cast<u32>(key) / kKeys % 2);
  }
  // Where a stage's block lies in shared memory.
  static METHOD u32 place(int stage) {
    return kTwo ? static_cast<u32>(stage) : 0;
  }
  METHOD void copy_keys(int stage) {
    copy_rows<kThreads, TileK, kTwo ? 8 : 4>(
        k_ + place(stage) * sizeof(TileK), params_.k,
        [&](int i, int further) { return shared().rows[stage].k[i + further]; });
  }
  METHOD void copy_values(int stage) {
    copy_rows<kThreads, TileV>(
        v_ + place(stage) * sizeof(TileV), params_.v,
        [&](int i, int further) { return shared().rows[stage].v[i + further]; });
  }

  // Of kTiles tiles of keys, as what follows.
  template <int kTiles>
  METHOD void score(u32 k) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < kTiles; n++)
        scores_[m][n][0] = scores_[m][n][1] = scores_[m][n][2] = scores_[m][n][3] = 0;
#pragma unroll
    for (int step = 0; step < kStepsQk; step++) {
      u32 a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; m++) load_left<TileQ>(a[m], q_lane_, 16 * m, step);
#pragma unroll
      for (int n = 0; n < kTiles; n += kPart) {
        u32 b[kPart][2];
        load_right_transposed<TileK>(b, k, step, n);
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
          multiply_row<Element>(part<kPart>(scores_[m], n), a[m], b);
      }
    }
  }

  // body(m, half, first_key) for each row of this lane's scores; those of tile n are of the keys
  // first_key + 8 * n and the next.
  template <typename Body>
  METHOD void for_each_score(int key, const Body& body) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        body(m, half, key + 2 * static_cast<int>(lane_index() % 4));
  }

  // Scores in log2 units: scale, softcap, ALiBi.
  template <int kTiles>
  METHOD void adjust(int key) {
    for_each_score(key, [&](int m, int half, int first_key) {
      const int row = row_of(m, half);
      const int position = row / kGroup + request_.kv_len - request_.query_len;
      const float slope =
          kVariant.alibi ? load_global_f32(params_.alibi_slopes + query_head(row)) : 0;
#pragma unroll
      for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& s = scores_[m][n][2 * half + i];
          s *= params_.scale;
          if (kVariant.softcap) s = soft_capped(s, params_.softcap);
          if (kVariant.alibi)
            s -= slope * fabsf(static_cast<float>(first_key + 8 * n + i - position));
          s *= kLog2E;
        }
    });
  }
  template <int kTiles>
  METHOD void mask(int key) {
    for_each_score(key, [&](int m, int half, int first_key) {
      const KeyRange seen = read(shared().seen_by[tile_row(m, half)]);
#pragma unroll
      for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int at = first_key + 8 * n + i;
          bool sees = at >= seen.begin && at < seen.end;
          if (kVariant.custom_mask)
            sees = sees && mask_bit(params_, request_, row_of(m, half) / kGroup, at);
          if (!sees) scores_[m][n][2 * half + i] = -infinity();
        }
    });
  }

  // Log2 units of a score.
  METHOD float factor() const {
    return kInAdvance ? 1.0f : params_.scale * kLog2E;
  }
  // Scores of the keys from `key` on to weights.
  template <int kTiles>
  METHOD void weigh(int key) {
    if (kInAdvance) adjust<kTiles>(key);
    const KeyRange by_all = read(shared().seen_by_all);
    if (kVariant.custom_mask || key < by_all.begin || key + 8 * kTiles > by_all.end)
      mask<kTiles>(key);
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
      float(&scores)[kTiles][4] = part<kTiles>(scores_[m], 0);
      const float decay[2] = {rows_[m][0].template weigh<0>(scores, factor()),
                              rows_[m][1].template weigh<1>(scores, factor())};
      if (!any_lane(decay[0] != 1 || decay[1] != 1)) continue;
#pragma unroll
      for (int n = 0; n < kOutTiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) out_[m][n][i] *= decay[i / 2];
    }
  }

  template <int kTiles>
  METHOD void add_values(u32 v) {
#pragma unroll
    for (int step = 0; step < kTiles / 2; step++) {
      // Two neighbouring tiles of weights are, lane by lane, a left operand.
      u32 a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float(&s)[4] = scores_[m][2 * step + i / 2];
          a[m][i] = Element::pack(s[i % 2 * 2], s[i % 2 * 2 + 1]);
        }
#pragma unroll
      for (int n = 0; n < kOutTiles; n += kPart) {
        u32 b[kPart][2];
        load_right<TileV>(b, v, step, n);
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) multiply_row<Element>(part<kPart>(out_[m], n), a[m], b);
      }
    }
  }

  // A row of the work that this lane has part in.
  struct Row {
    bool is_there;
    int token, query_head;
    i64 partial;  // its partial row
  };
  METHOD Row find_row(int m, int half) const {
    const int row = row_of(m, half);
    return {row < work_.row_end, request_.query_start + row / kGroup, query_head(row),
            (work_.partial + row - work_.row_begin) * grid_size_x() + block_index_x()};
  }

  METHOD ClosedRow close(const SoftmaxRow& state, const Row& row, bool takes_sink) const {
    const float sum = lanes_sum<kRowLanes>(state.sum);
    const float top = state.reference(factor());
    if (kVariant.sinks && takes_sink && row.is_there)
      return close_row(top, sum, load_global_f32(params_.sinks + row.query_head));
    return close_row(top, sum);
  }

  METHOD void store_partial(int m, int half, const Row& row, const ClosedRow& closed) {
    if (!row.is_there) return;
    const int lane = static_cast<int>(lane_index()) % kRowLanes;
    float* out = params_.partial_out + row.partial * kDimVo + 2 * lane;
    const float factor = closed.factor * params_.out_scale;
#pragma unroll
    for (int n = 0; n < kOutTiles; n++)
      if (8 * n < kDimVo)
        store_global_8(out + 8 * n, float_bits(out_[m][n][2 * half] * factor),
                       float_bits(out_[m][n][2 * half + 1] * factor));
    if (lane == 0) store_global_f32(params_.partial_lse + row.partial, closed.lse);
  }

  // Word i of the row's lane l becomes word l of its lane i.
  METHOD void exchange(u32 (&words)[4]) {
    const u32 lane = anew(lane_index()) % kRowLanes;
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
      const bool set = lane & bit;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (i & bit) continue;
        u32 &low = words[i], &high = words[i + bit];
        const u32 got = float_bits(shuffle_xor(bits_float(set ? low : high), bit));
        low = set ? got : low, high = set ? high : got;
      }
    }
  }
  METHOD void store_outputs(int m, int half, const Row& row, float factor) {
    const u32 lane = anew(lane_index()) % kRowLanes;
    u8* out = params_.out + row.token * params_.out_token_stride +
              row.query_head * params_.out_head_stride;
    u32 words[round_up(kOutTiles, 4)] = {};
#pragma unroll
    for (int n = 0; n < kOutTiles; n++)
      words[n] = Element::pack(out_[m][n][2 * half] * factor, out_[m][n][2 * half + 1] * factor);
    if (!params_.out_in_chunks) {
      out += 4 * lane;
#pragma unroll
      for (int n = 0; n < kOutTiles; n++)
        if (row.is_there && 8 * n < kDimVo) store_global_4(out + 16 * n, words[n]);
      return;
    }
    // Of four tiles, four lanes have 4 bytes each; afterwards each lane has the 16 of one tile's
    // row, so that a store takes 64 bytes of each of 8 rows. Its address, and whether the row is
    // there, are found once before all stores, not with each.
#pragma unroll
    for (int n = 0; n < kOutTiles; n += 4) exchange(reinterpret_cast<u32(&)[4]>(words[n]));
    if (!row.is_there) return;
    out += 16 * lane;
#pragma unroll
    for (int n = 0; n < kOutTiles; n += 4)
      if (8 * (n + 3) < kDimVo || 8 * (n + static_cast<int>(lane)) < kDimVo)
        store_global_16(out + 16 * n, {words[n], words[n + 1], words[n + 2], words[n + 3]});
  }
  METHOD void store_lse(const Row& row, float lse) {
    if (params_.lse && row.is_there && lane_index() % kRowLanes == 0)
      store_global_f32(params_.lse + row.query_head * params_.lse_head_stride +
                           row.token * params_.lse_token_stride,
                       lse);
  }

  METHOD void finish() {
    // Rows and their sums before anything is stored, so that none waits for another's.
    const bool partial = work_.partial >= 0;
    Row rows[2 * kRowTiles];
    ClosedRow closed[2 * kRowTiles];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; i++) {
      rows[i] = find_row(i / 2, i % 2);
      closed[i] = close(rows_[i / 2][i % 2], rows[i], !partial);
    }
    if (partial) {
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; i++) store_partial(i / 2, i % 2, rows[i], closed[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; i++) {
      store_outputs(i / 2, i % 2, rows[i], closed[i].factor * params_.out_scale);
      store_lse(rows[i], closed[i].lse);
    }
  }

  const AttentionParams& params_;
  const AttentionWork& work_;
  const AttentionRequest& request_;
  u32 q_, k_, v_, q_lane_;

  float scores_[kRowTiles][kKeyTiles][4];
  float out_[kRowTiles][kOutTiles][4];
  SoftmaxRow rows_[kRowTiles][2];
};

}  // namespace rapt::device
