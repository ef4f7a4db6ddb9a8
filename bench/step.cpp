#include "bench/step.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace rapt::bench {
namespace {

constexpr int32_t kNoPage = std::numeric_limits<int32_t>::min();

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

SelectOptions options_of(const Shape& shape) {
  SelectOptions options;
  if (shape.page_size > 0) options.layout = shape.layout;
  return options;
}

}  // namespace

Step::Step(Context& context, const Shape& shape, int64_t pool_bytes)
    : shape_(shape), attention_(context, spec_of(shape), options_of(shape)) {
  const auto element = static_cast<int64_t>(size_of(shape.dtype));
  const int64_t num_tokens = int64_t{shape.requests} * shape.queries;
  const int64_t q_bytes = num_tokens * shape.query_heads * shape.head_dim * element;
  q_ = Memory(q_bytes);
  out_ = Memory(q_bytes);
  fill_random(q_.data(), q_bytes, shape.dtype, 1);
  fill_poison(out_.data(), q_bytes);
  q_view_ = TensorView::contiguous(q_.data(), shape.dtype,
                                   {num_tokens, shape.query_heads, shape.head_dim});
  out_view_ = TensorView::contiguous(out_.data(), shape.dtype,
                                     {num_tokens, shape.query_heads, shape.head_dim});
  for (int32_t b = 0; b <= shape.requests; b++) query_start_.push_back(b * shape.queries);
  kv_len_.assign(static_cast<size_t>(shape.requests), shape.keys);
  if (shape.page_size > 0) {
    make_pages(pool_bytes);
  } else {
    make_ragged(pool_bytes);
  }

  size_t workspace_bytes = 0;
  for (const Plan& plan : plans_)
    workspace_bytes = std::max(workspace_bytes, plan.workspace_bytes());
  workspace_ = Memory(static_cast<int64_t>(workspace_bytes));
  fill_poison(workspace_.data(), workspace_.bytes());
  for (int64_t set = 0; set < num_sets(); set++) run(set);
  if (has_nan(out_.data(), out_.bytes(), shape.dtype))
    throw Error(ErrorCode::kInternal,
                shape.describe() + ": the output has NaN: what no query sees was read");
}

void Step::make_pages(int64_t pool_bytes) {
  const int64_t pages_per_request = ceil_div(shape_.keys, shape_.page_size);
  const int64_t pages_per_set = pages_per_request * shape_.requests;
  const int64_t page_bytes =
      KvCacheGeometry::of(attention_.spec(), 1, shape_.cache_shape, shape_.layout).page_bytes();
  bytes_ = pages_per_set * page_bytes;
  const int64_t sets = std::max<int64_t>(ceil_div(pool_bytes, bytes_), 1);
  const int64_t used_pages = pool_bytes > 0 && bytes_ > pool_bytes
                                 ? ceil_div(pool_bytes, page_bytes)
                                 : sets * pages_per_set;
  const int64_t num_pages = used_pages + 1;
  const KvCacheGeometry geometry =
      KvCacheGeometry::of(attention_.spec(), num_pages, shape_.cache_shape, shape_.layout);
  pool_ = Memory(geometry.total_bytes());
  fill_random(pool_.data(), pool_.bytes(), shape_.dtype, 2);
  const KvCacheView cache = geometry.view(pool_.data());
  caches_.assign(static_cast<size_t>(sets), cache);

  // A page lies in one piece, or in two where all K come before all V.
  const auto runs_of = [&](int64_t page) {
    if (shape_.cache_shape != KvShape::kKvPages)
      return std::vector<Run>{{pool_.data() + page * page_bytes, page_bytes}};
    const std::byte* k = pool_.data() + page * page_bytes / 2;
    return std::vector<Run>{{k, page_bytes / 2}, {k + num_pages * page_bytes / 2, page_bytes / 2}};
  };
  std::vector<int32_t> shuffled(static_cast<size_t>(num_pages));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(3));
  for (const Run& run : runs_of(shuffled.back()))
    fill_poison(pool_.data() + (run.data - pool_.data()), run.bytes);

  const int64_t width = pages_per_request + 1;
  page_table_.assign(static_cast<size_t>(sets * shape_.requests * width), kNoPage);
  int64_t next = 0;
  for (int64_t set = 0; set < sets; set++) {
    std::vector<Run>& reads = reads_.emplace_back();
    int32_t* table = page_table_.data() + set * shape_.requests * width;
    for (int64_t b = 0; b < shape_.requests; b++)
      for (int64_t i = 0; i < pages_per_request; i++) {
        const int32_t page = shuffled[static_cast<size_t>(next++ % used_pages)];
        table[b * width + i] = page;
        for (const Run& run : runs_of(page)) reads.push_back(run);
      }
    Batch batch;
    batch.query_start = query_start_;
    batch.kv_len = kv_len_;
    batch.page_table = TensorView::contiguous(table, DType::kInt32, {shape_.requests, width});
    batch.num_pages = num_pages;
    plans_.push_back(attention_.plan(batch));
  }
}

void Step::make_ragged(int64_t pool_bytes) {
  const int64_t rows = int64_t{shape_.requests} * shape_.keys;
  const int64_t row_bytes =
      int64_t{shape_.kv_heads} * shape_.head_dim * static_cast<int64_t>(size_of(shape_.dtype));
  bytes_ = 2 * rows * row_bytes;
  const int64_t sets = std::max<int64_t>(ceil_div(pool_bytes, bytes_), 1);
  pool_ = Memory(sets * bytes_);
  fill_random(pool_.data(), pool_.bytes(), shape_.dtype, 2);
  for (int32_t b = 0; b <= shape_.requests; b++) kv_start_.push_back(b * shape_.keys);
  Batch batch;
  batch.query_start = query_start_;
  batch.kv_len = kv_len_;
  batch.kv_start = kv_start_;
  for (int64_t set = 0; set < sets; set++) {
    std::byte* k = pool_.data() + set * bytes_;
    std::byte* v = k + bytes_ / 2;
    const auto view = [&](std::byte* data) {
      return TensorView::contiguous(data, shape_.dtype, {rows, shape_.kv_heads, shape_.head_dim});
    };
    caches_.push_back({view(k), view(v)});
    // Each request's K, then its V.
    std::vector<Run>& reads = reads_.emplace_back();
    for (int64_t b = 0; b < shape_.requests; b++)
      for (std::byte* part : {k, v})
        reads.push_back({part + b * shape_.keys * row_bytes, shape_.keys * row_bytes});
    plans_.push_back(attention_.plan(batch));
  }
}

void Step::run(int64_t set) const {
  const auto index = static_cast<size_t>(set);
  RunArgs args;
  args.q = q_view_;
  args.k = caches_[index].k;
  args.v = caches_[index].v;
  args.out = out_view_;
  args.workspace = {workspace_.data(), static_cast<size_t>(workspace_.bytes())};
  attention_.run(plans_[index], args);
}

Run Step::sequential(int64_t set) const {
  const int64_t bytes = std::min(bytes_, pool_.bytes() / 64 * 64);
  return {pool_.data() + (num_sets() > 1 ? set * bytes : 0), bytes};
}

}  // namespace rapt::bench
