// KV-cache geometry as data: logical shape, layout, and the strided K and V views that every
// backend reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/dtype.hpp"
#include "rapt/export.hpp"
#include "rapt/spec.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// Logical shapes seen in serving engines; D stands for a row of the cache's format.
enum class KvShape : uint8_t {
  kPagesKv,  // (num_pages, 2, page_size, Hkv, D): K and V of a page are neighbours
  kKvPages,  // (2, num_pages, page_size, Hkv, D): all K, then all V
  kPacked,   // (num_pages, Hkv, page_size, Dqk + Dvo): a token's K row then its V row
};

// Order of tokens and heads within a page: NHD keeps a token's heads together, HND a head's tokens.
enum class KvLayout : uint8_t { kNHD, kHND };

RAPT_API const char* to_string(KvShape shape);
RAPT_API const char* to_string(KvLayout layout);

// The pair every backend reads and write_kv() fills.
struct KvCacheView {
  TensorView k{};  // [num_pages, page_size, Hkv, Dqk], any strides but the last
  TensorView v{};  // [num_pages, page_size, Hkv, Dvo]
};

struct RAPT_API KvCacheGeometry {
  KvShape shape = KvShape::kPagesKv;
  KvLayout layout = KvLayout::kNHD;
  int64_t num_pages = 0;
  int32_t page_size = 16;
  int32_t num_kv_heads = 0;
  int32_t head_dim_qk = 0;
  int32_t head_dim_vo = 0;  // 0 = head_dim_qk; other values need kPacked
  KvFormat format = KvFormat::kBFloat16;
  int32_t num_layers = 0;  // 0 = no layer axis; otherwise layers interleave within a page's block

  static KvCacheGeometry of(const AttentionSpec& spec, int64_t num_pages,
                            KvShape shape = KvShape::kPagesKv, KvLayout layout = KvLayout::kNHD,
                            int32_t num_layers = 0);

  void validate() const;  // throws Error(kInvalidArgument), also when a size overflows int64
  // Sizes of the logical axes, the layer axis (if any) first.
  std::vector<int64_t> logical_shape() const;
  // Logical axes in physical order, slowest first.
  std::vector<int32_t> stride_order() const;
  int64_t total_bytes() const;
  // Bytes of one page of one layer, K and V.
  int64_t page_bytes() const;
  // K and V of a layer in the pool at `base` (total_bytes() long, any contents). layer is 0 without
  // a layer axis.
  KvCacheView view(void* base, int32_t layer = 0, Device device = {}) const;
};

// Kernel pages of manager pages: manager page b with ratio r is kernel pages b*r .. b*r + r - 1.
// out holds r * manager_pages.size() entries. Negative (unused) entries stay negative.
RAPT_API void expand_pages(std::span<const int32_t> manager_pages, int32_t ratio,
                           std::span<int32_t> out);

// slot = page * page_size + offset of token position `pos`, through the request's kernel pages.
// Throws Error(kInvalidArgument) where they have no page for it, an unused (negative) one included.
RAPT_API int64_t slot_of(std::span<const int32_t> pages, int32_t page_size, int64_t pos);

}  // namespace rapt
