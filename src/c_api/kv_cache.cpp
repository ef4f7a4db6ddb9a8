#include "rapt/kv_cache.hpp"

#include <algorithm>
#include <span>

#include "c_api/params.hpp"
#include "c_api/spec.hpp"
#include "c_api/tensor.hpp"

namespace rapt::c_api {
namespace {

KvShape shape_of(int32_t shape) {
  return to_enum(shape, KvShape::kPacked, "shape");
}
KvLayout layout_of(int32_t layout) {
  return to_enum(layout, KvLayout::kHND, "layout");
}

KvCacheGeometry geometry_of(const rapt_kv_cache_geometry* geometry) {
  const rapt_kv_cache_geometry given = read_params(geometry, "geometry");
  KvCacheGeometry result;
  result.shape = shape_of(given.shape);
  result.layout = layout_of(given.layout);
  result.num_pages = given.num_pages;
  result.page_size = given.page_size;
  result.num_kv_heads = given.num_kv_heads;
  result.head_dim_qk = given.head_dim_qk;
  result.head_dim_vo = given.head_dim_vo;
  result.format = to_enum(given.format, KvFormat::kTurboQuant3BitNc, "geometry->format");
  result.num_layers = given.num_layers;
  result.validate();
  return result;
}

}  // namespace
}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_kv_cache_geometry_of(const rapt_attention_spec* spec, int64_t num_pages,
                                      rapt_kv_shape shape, rapt_kv_layout layout,
                                      int32_t num_layers, rapt_kv_cache_geometry* geometry) {
  return guarded([&] {
    const size_t size = checked_struct_size(geometry, "geometry");
    const auto made = rapt::KvCacheGeometry::of(spec_of(spec), num_pages, shape_of(shape),
                                                layout_of(layout), num_layers);
    made.validate();
    rapt_kv_cache_geometry result{};
    result.shape = static_cast<rapt_kv_shape>(made.shape);
    result.layout = static_cast<rapt_kv_layout>(made.layout);
    result.num_pages = made.num_pages;
    result.page_size = made.page_size;
    result.num_kv_heads = made.num_kv_heads;
    result.head_dim_qk = made.head_dim_qk;
    result.head_dim_vo = made.head_dim_vo;
    result.format = static_cast<rapt_kv_format>(made.format);
    result.num_layers = made.num_layers;
    write_params(geometry, size, result);
  });
}

rapt_status rapt_kv_cache_total_bytes(const rapt_kv_cache_geometry* geometry, int64_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = geometry_of(geometry).total_bytes();
  });
}

rapt_status rapt_kv_cache_page_bytes(const rapt_kv_cache_geometry* geometry, int64_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = geometry_of(geometry).page_bytes();
  });
}

rapt_status rapt_kv_cache_axes(const rapt_kv_cache_geometry* geometry, int32_t* num_axes,
                               int64_t sizes[RAPT_KV_MAX_AXES],
                               int32_t stride_order[RAPT_KV_MAX_AXES]) {
  return guarded([&] {
    require(num_axes, "num_axes");
    require(sizes, "sizes");
    require(stride_order, "stride_order");
    const rapt::KvCacheGeometry given = geometry_of(geometry);
    const auto shape = given.logical_shape();
    const auto order = given.stride_order();
    std::copy(shape.begin(), shape.end(), sizes);
    std::copy(order.begin(), order.end(), stride_order);
    *num_axes = static_cast<int32_t>(shape.size());
  });
}

rapt_status rapt_kv_cache_view(const rapt_kv_cache_geometry* geometry, void* base, int32_t layer,
                               DLDevice device, DLTensor* k, DLTensor* v,
                               int64_t ints[RAPT_KV_VIEW_INTS]) {
  return guarded([&] {
    require(base, "base");
    require(k, "k");
    require(v, "v");
    require(ints, "ints");
    const rapt::KvCacheView view =
        geometry_of(geometry).view(base, layer, device_of(device, "device"));
    const int32_t ints_of_k = 2 * view.k.rank;
    rapt::check(ints_of_k + 2 * view.v.rank <= RAPT_KV_VIEW_INTS, "K and V have ", view.k.rank,
                " and ", view.v.rank, " axes: RAPT_KV_VIEW_INTS is ", RAPT_KV_VIEW_INTS);
    *k = dl_tensor(view.k, device, ints);
    *v = dl_tensor(view.v, device, ints + ints_of_k);
  });
}

rapt_status rapt_expand_pages(const int32_t* manager_pages, size_t num_manager_pages, int32_t ratio,
                              int32_t* kernel_pages) {
  return guarded([&] {
    rapt::check(ratio >= 1, "ratio is ", ratio, ": must be at least 1");
    if (num_manager_pages == 0) return;
    require(manager_pages, "manager_pages");
    require(kernel_pages, "kernel_pages");
    rapt::expand_pages({manager_pages, num_manager_pages}, ratio,
                       {kernel_pages, num_manager_pages * static_cast<size_t>(ratio)});
  });
}

rapt_status rapt_slot_of(const int32_t* pages, size_t num_pages, int32_t page_size,
                         int64_t position, int64_t* slot) {
  return guarded([&] {
    require(slot, "slot");
    if (num_pages > 0) require(pages, "pages");
    *slot = rapt::slot_of({pages, num_pages}, page_size, position);
  });
}
