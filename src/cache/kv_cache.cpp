#include "rapt/kv_cache.hpp"

#include <cstddef>
#include <initializer_list>
#include <limits>

#include "core/check.hpp"

namespace rapt {
namespace {

// Where a logical axis list of a shape without layers has its axes; with layers, all are one
// further.
struct Axes {
  int32_t page, token, head, row;
};
constexpr int32_t kLayerAxis = 0;

Axes axes_of(KvShape shape) {
  switch (shape) {
    case KvShape::kPagesKv:
      return {.page = 0, .token = 2, .head = 3, .row = 4};
    case KvShape::kKvPages:
      return {.page = 1, .token = 2, .head = 3, .row = 4};
    case KvShape::kPacked:
      return {.page = 0, .token = 2, .head = 1, .row = 3};
  }
  fail(ErrorCode::kInvalidArgument, "shape is ", static_cast<int>(shape), ": no such shape");
}

// The axis that K and V are the two entries of; a packed row has them side by side instead.
int32_t kv_axis(KvShape shape) {
  return shape == KvShape::kPagesKv ? 1 : 0;
}

// Logical axes in physical order, slowest first. Layers interleave: inside a page with NHD, and
// inside a page's head with HND, so that one head of a page is one run of memory for all layers.
struct Order {
  KvShape shape;
  KvLayout layout;
  bool layered;
  std::initializer_list<int32_t> axes;
};
const Order kOrders[] = {
    {KvShape::kPagesKv, KvLayout::kNHD, false, {0, 1, 2, 3, 4}},
    {KvShape::kPagesKv, KvLayout::kHND, false, {0, 1, 3, 2, 4}},
    // pages, layers, 2, page_size, Hkv, D
    {KvShape::kPagesKv, KvLayout::kNHD, true, {1, 0, 2, 3, 4, 5}},
    // pages, Hkv, layers, 2, page_size, D
    {KvShape::kPagesKv, KvLayout::kHND, true, {1, 4, 0, 2, 3, 5}},
    {KvShape::kKvPages, KvLayout::kNHD, false, {0, 1, 2, 3, 4}},
    {KvShape::kKvPages, KvLayout::kHND, false, {0, 1, 3, 2, 4}},
    // 2, pages, layers, page_size, Hkv, D: K stays one half of the pool and V the other
    {KvShape::kKvPages, KvLayout::kNHD, true, {1, 2, 0, 3, 4, 5}},
    // 2, pages, Hkv, layers, page_size, D
    {KvShape::kKvPages, KvLayout::kHND, true, {1, 2, 4, 0, 3, 5}},
    {KvShape::kPacked, KvLayout::kNHD, false, {0, 2, 1, 3}},
    {KvShape::kPacked, KvLayout::kHND, false, {0, 1, 2, 3}},
    // pages, layers, page_size, Hkv, Dqk + Dvo
    {KvShape::kPacked, KvLayout::kNHD, true, {1, 0, 3, 2, 4}},
    // pages, Hkv, layers, page_size, Dqk + Dvo
    {KvShape::kPacked, KvLayout::kHND, true, {1, 2, 0, 3, 4}},
};

// Strides in elements of the logical axes, when they lie in memory in that order without gaps.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape,
                                const std::vector<int32_t>& order) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride = checked_mul(stride, shape[order[i]], "KV cache");
  }
  return strides;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (int64_t size : sizes) result = checked_mul(result, size, "KV cache");
  return result;
}

DType row_dtype(KvFormat format) {
  const std::optional<DType> dtype = storage_dtype(format);
  check(dtype.has_value(), "format is ", to_string(format),
        ": its rows are not whole elements of one type, so a cache of it has no strided K and V "
        "views; use float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
  return *dtype;
}

int32_t dim_vo(const KvCacheGeometry& geometry) {
  return geometry.head_dim_vo ? geometry.head_dim_vo : geometry.head_dim_qk;
}

}  // namespace

const char* to_string(KvShape shape) {
  switch (shape) {
    case KvShape::kPagesKv:
      return "pages_kv";
    case KvShape::kKvPages:
      return "kv_pages";
    case KvShape::kPacked:
      return "packed";
  }
  return "unknown";
}

const char* to_string(KvLayout layout) {
  return layout == KvLayout::kNHD ? "NHD" : "HND";
}

KvCacheGeometry KvCacheGeometry::of(const AttentionSpec& spec, int64_t num_pages, KvShape shape,
                                    KvLayout layout, int32_t num_layers) {
  check(spec.is_paged(), "page_size is 0: a spec without a cache has no cache geometry");
  KvCacheGeometry geometry{
      .shape = shape,
      .layout = layout,
      .num_pages = num_pages,
      .page_size = spec.page_size,
      .num_kv_heads = spec.num_kv_heads,
      .head_dim_qk = spec.head_dim_qk,
      .head_dim_vo = spec.dim_vo(),
      .format = spec.cache_format(),
      .num_layers = num_layers,
  };
  geometry.validate();
  return geometry;
}

void KvCacheGeometry::validate() const {
  check(shape <= KvShape::kPacked && layout <= KvLayout::kHND, "shape is ", static_cast<int>(shape),
        " and layout ", static_cast<int>(layout), ": no such shape or layout");
  check(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max(), "num_pages is ",
        num_pages, ": must be in [0, 2^31 - 1], page ids are int32");
  check(page_size >= 1, "page_size is ", page_size, ": must be at least 1");
  check(num_kv_heads >= 1, "num_kv_heads is ", num_kv_heads, ": must be at least 1");
  check(head_dim_qk >= 1, "head_dim_qk is ", head_dim_qk, ": must be at least 1");
  check(head_dim_vo >= 0, "head_dim_vo is ", head_dim_vo, ": must not be negative");
  check(num_layers >= 0, "num_layers is ", num_layers, ": must not be negative");
  check(shape == KvShape::kPacked || dim_vo(*this) == head_dim_qk, "head_dim_vo is ", head_dim_vo,
        " and head_dim_qk is ", head_dim_qk, ": shape ", to_string(shape),
        " has rows of one length; use shape ", to_string(KvShape::kPacked));
  row_dtype(format);
  total_bytes();
}

std::vector<int64_t> KvCacheGeometry::logical_shape() const {
  std::vector<int64_t> sizes;
  switch (shape) {
    case KvShape::kPagesKv:
      sizes = {num_pages, 2, page_size, num_kv_heads, head_dim_qk};
      break;
    case KvShape::kKvPages:
      sizes = {2, num_pages, page_size, num_kv_heads, head_dim_qk};
      break;
    case KvShape::kPacked:
      sizes = {num_pages, num_kv_heads, page_size, int64_t{head_dim_qk} + dim_vo(*this)};
      break;
  }
  if (num_layers > 0) sizes.insert(sizes.begin() + kLayerAxis, num_layers);
  return sizes;
}

std::vector<int32_t> KvCacheGeometry::stride_order() const {
  for (const Order& order : kOrders)
    if (order.shape == shape && order.layout == layout && order.layered == (num_layers > 0))
      return order.axes;
  fail(ErrorCode::kInvalidArgument, "shape is ", static_cast<int>(shape), " and layout is ",
       static_cast<int>(layout), ": no such shape or layout");
}

int64_t KvCacheGeometry::total_bytes() const {
  const auto bytes = static_cast<int64_t>(size_of(row_dtype(format)));
  return checked_mul(product(logical_shape()), bytes, "KV cache");
}

int64_t KvCacheGeometry::page_bytes() const {
  return product({page_size, num_kv_heads, int64_t{head_dim_qk} + dim_vo(*this),
                  static_cast<int64_t>(size_of(row_dtype(format)))});
}

KvCacheView KvCacheGeometry::view(void* base, int32_t layer, Device device) const {
  validate();
  const int32_t layers = num_layers > 0 ? num_layers : 1;
  check(layer >= 0 && layer < layers, "layer is ", layer, ": the cache has layers 0 to ",
        layers - 1);
  check(base != nullptr || num_pages == 0, "base is null: the pool takes ", total_bytes(),
        " bytes");
  const std::vector<int64_t> strides = strides_of(logical_shape(), stride_order());
  const int32_t skip = num_layers > 0 ? 1 : 0;  // the layer axis
  const Axes axes = axes_of(shape);
  const DType dtype = row_dtype(format);

  const int64_t k_first = skip ? layer * strides[kLayerAxis] : 0;
  const int64_t v_first =
      k_first + (shape == KvShape::kPacked ? head_dim_qk : strides[kv_axis(shape) + skip]);
  auto make = [&](int64_t first_element, int64_t head_dim) {
    std::byte* data =
        base ? static_cast<std::byte*>(base) + first_element * size_of(dtype) : nullptr;
    return TensorView::strided(data, dtype, {num_pages, page_size, num_kv_heads, head_dim},
                               {strides[axes.page + skip], strides[axes.token + skip],
                                strides[axes.head + skip], strides[axes.row + skip]},
                               device);
  };
  return {.k = make(k_first, head_dim_qk), .v = make(v_first, dim_vo(*this))};
}

}  // namespace rapt
