// A block of keys, copied out of the cache into the layouts that register tiles read. The copy goes
// through the page table, so a paged cache costs the kernel nothing more than a contiguous one.
// Keys that no row of the work sees become zeros: whatever lies there (NaN) has no influence.
#pragma once

#include "backends/cpu/products-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kMaxPrefillRows = 24 * 96;  // of one call; whole blocks of rows at every level
constexpr int kStateBytes = 1152 * 1024;  // of O kept between blocks of keys

// Keys [begin, begin + key_block) of a request, those within `keys` and `seen` real.
struct KeyBlock {
  int begin;
  Range keys;            // within the block
  const uint32_t* seen;  // bit per key of the block: some row's custom mask shows it; null = all
  bool has(int key) const {
    if (key < keys.begin || key >= keys.end) return false;
    const int i = key - begin;
    return !seen || (seen[i / 32] >> (i % 32) & 1);
  }
};

// Sets KeyBlock::seen for keys [keys.begin, keys.end) of the request and the given queries.
inline void mark_seen(const Problem& problem, const Request& request, const Work& work,
                      Range tokens, int block, Range keys, uint32_t* seen) {
  for (int i = 0; i < (keys.end - block + 31) / 32; i++) seen[i] = 0;
  for (int token = tokens.begin; token < tokens.end; token++) {
    const Range own = visible_range(problem, request, work, token);
    const Range here{larger(own.begin, keys.begin), smaller(own.end, keys.end)};
    for (int key = here.begin; key < here.end;) {
      const int bit = (key - block) % 32, n = smaller(32 - bit, here.end - key);
      seen[(key - block) / 32] |= mask_bits(problem, request, token, key, n) << bit;
      key += n;
    }
  }
}

inline int64_t token_offset(const Problem& problem, const Request& request, int key,
                            int64_t page_stride, int64_t token_stride) {
  if (!request.pages) return (request.kv_start + key) * token_stride;
  return request.pages[key / problem.page_size] * page_stride +
         key % problem.page_size * token_stride;
}
template <typename T>
inline const T* key_row(const Problem& problem, const Request& request, int head, int key) {
  return reinterpret_cast<const T*>(
      problem.k + head * problem.k_head_stride +
      token_offset(problem, request, key, problem.k_page_stride, problem.k_token_stride));
}
template <typename T>
inline const T* value_row(const Problem& problem, const Request& request, int head, int key) {
  return reinterpret_cast<const T*>(
      problem.v + head * problem.v_head_stride +
      token_offset(problem, request, key, problem.v_page_stride, problem.v_token_stride));
}

// Brings bytes into L2 for a later use. Inlined, like all that does nothing else: gcc takes such a
// function for one without effect and drops its calls.
RAPT_ALWAYS_INLINE inline void prefetch(const void* from, int bytes) {
  for (int i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const std::byte*>(from) + i, 0, 2);
}
// Likewise lines that will be written, nearer still.
RAPT_ALWAYS_INLINE inline void prefetch_for_write(void* to, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<std::byte*>(to) + i, 1, 3);
}
template <typename T>
RAPT_ALWAYS_INLINE inline void prefetch_keys(const Problem& problem, const Request& request,
                                             int head, int first, int last) {
  for (int key = first; key < last; key++) {
    prefetch(key_row<T>(problem, request, head, key),
             problem.head_dim_qk * static_cast<int>(sizeof(T)));
    prefetch(value_row<T>(problem, request, head, key),
             problem.head_dim_vo * static_cast<int>(sizeof(T)));
  }
}

// Units of a packed query or key row: Dqk / kStep, padded with zeros.
template <typename Products>
int num_units(const Problem& problem) {
  return round_up_to(problem.head_dim_qk / Products::kStep, Products::Tile::kUnits);
}

// Keys [first, last) of the block, multiples of a panel:
//   out [key panel][units][kPacked]: a panel's keys lie across lanes.
template <typename T, typename Products>
void pack_keys(const Problem& problem, const Request& request, int head, const KeyBlock& block,
               int first, int last, typename Products::Element* out) {
  constexpr int kPacked = Products::Tile::kPacked;
  const int units = problem.head_dim_qk / Products::kStep, padded = num_units<Products>(problem);
  for (int key = first; key < last; key += kWidth) {
    const T* rows[kWidth];
    for (int i = 0; i < kWidth; i++)
      rows[i] = block.has(block.begin + key + i)
                    ? key_row<T>(problem, request, head, block.begin + key + i)
                    : nullptr;
    float* column =
        reinterpret_cast<float*>(out) + key / kPacked * kPacked * padded + key % kPacked;
    for (int unit = 0; unit < units; unit += kWidth) {
      const int here = smaller(kWidth, units - unit);
      Vec r[kWidth];
      for (int i = 0; i < kWidth; i++)
        r[i] = rows[i] ? Products::load_units(rows[i], unit, first_lanes(here)) : zero();
      transpose(r);
      for (int i = 0; i < here; i++) store(column + (unit + i) * kPacked, r[i]);
    }
    for (int unit = units; unit < padded; unit++) store(column + unit * kPacked, zero());
  }
}

// out [dim panel][key_block / kStep][up to kPacked dims]: a unit holds a dim of kStep keys. Dims
// are padded with zeros to whole vectors.
template <typename T, typename Products>
void pack_values(const Problem& problem, const Request& request, int head, const KeyBlock& block,
                 int first, int last, int key_block, typename Products::Element* out) {
  constexpr int kStep = Products::kStep, kPacked = Products::Tile::kPacked;
  alignas(64) static constexpr T kZeros[kWidth] = {};
  const int dims = problem.head_dim_vo;
  for (int key = first; key < last; key += kStep) {
    const T* rows[kStep];
    bool real[kStep];
    for (int i = 0; i < kStep; i++) {
      real[i] = block.has(block.begin + key + i);
      rows[i] = real[i] ? value_row<T>(problem, request, head, block.begin + key + i) : kZeros;
    }
    for (int panel = 0; panel < dims; panel += kPacked) {
      const int width = smaller(kPacked, round_up_to(dims - panel, kWidth));
      float* to = reinterpret_cast<float*>(out) + panel * (key_block / kStep) + key / kStep * width;
      for (int dim = panel; dim < panel + width; dim += kWidth) {
        const T* at[kStep];
        for (int i = 0; i < kStep; i++) at[i] = real[i] ? rows[i] + dim : kZeros;
        store(to + dim - panel, Products::load_values(at, first_lanes(dims - dim)));
      }
    }
  }
}

// Query rows [first, first + count) of a KV head: row r is token r / group, head r % group of the
// group. out [count][Dqk]; rows up to a multiple of kTileRows are zeros.
template <typename T, typename Products>
void pack_queries(const Problem& problem, const Request& request, int head, int first, int count,
                  typename Products::Element* out) {
  const int units = problem.head_dim_qk / Products::kStep, padded = num_units<Products>(problem);
  for (int i = 0; i < round_up_to(count, Products::Tile::kRows); i++) {
    float* to = reinterpret_cast<float*>(out) + i * padded;
    for (int unit = units; unit < padded; unit++) to[unit] = 0;
    const int token = (first + i) / problem.group, member = (first + i) % problem.group;
    const T* row = reinterpret_cast<const T*>(
        problem.q + (request.query_start + token) * problem.q_token_stride +
        (int64_t{head} * problem.group + member) * problem.q_head_stride);
    for (int unit = 0; unit < units; unit += kWidth) {
      const Mask mask = first_lanes(units - unit);
      store(to + unit, i < count ? Products::load_units(row, unit, mask) : zero(), mask);
    }
  }
}

}  // namespace
}  // namespace rapt::cpu
