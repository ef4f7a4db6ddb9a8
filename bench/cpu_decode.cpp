#include "bench/cpu_decode.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <sstream>

#include "bench/memory_limits.hpp"

namespace rapt::bench {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Pages of memory that are there, so that no measurement pays for the first touch.
class Pool {
 public:
  explicit Pool(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Pool() { munmap(data_, bytes_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

// Small values of any sign: bf16 and fp16 from 2^-3 to 1, fp32 likewise.
void fill(std::byte* data, size_t bytes, DType dtype) {
  uint64_t state = 0x9e3779b97f4a7c15u;
  auto next = [&] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
  const bool half = dtype == DType::kFloat16;
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    const auto bits = static_cast<uint32_t>(next());
    uint32_t value;
    if (dtype == DType::kFloat32)
      value = (bits & 0x80ffffffu) | 0x3e000000u;
    else if (half)
      value = (bits & 0x83ff83ffu) | 0x34003400u;
    else
      value = (bits & 0x80ff80ffu) | 0x3e003e00u;
    std::memcpy(data + i, &value, 4);
  }
}

}  // namespace

std::string DecodeCase::describe() const {
  std::ostringstream text;
  text << to_string(dtype) << ' ' << num_query_heads << '/' << num_kv_heads << " heads D "
       << head_dim << " page " << page_size << ' ' << to_string(shape) << '/' << to_string(layout)
       << ' ' << num_requests << " x " << kv_len << " keys, " << (pool_bytes ? "cold" : "warm")
       << ", " << num_threads << " threads";
  return text.str();
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

DecodeFigures measure(const DecodeCase& c, double seconds) {
  AttentionSpec spec;
  spec.num_query_heads = c.num_query_heads;
  spec.num_kv_heads = c.num_kv_heads;
  spec.head_dim_qk = c.head_dim;
  spec.dtype = c.dtype;
  // A contiguous cache is a paged one whose pages come in order.
  spec.page_size = c.page_size ? c.page_size : 64;

  const int64_t pages_per_request = ceil_div(c.kv_len, spec.page_size);
  const int64_t pages_per_set = pages_per_request * c.num_requests;
  const int64_t page_bytes = 2 * int64_t{spec.page_size} * c.num_kv_heads * c.head_dim *
                             static_cast<int64_t>(size_of(c.dtype));
  const int64_t num_sets = std::max<int64_t>(ceil_div(c.pool_bytes, pages_per_set * page_bytes), 1);
  const int64_t num_pages = num_sets * pages_per_set;
  const KvCacheGeometry geometry = KvCacheGeometry::of(spec, num_pages, c.shape, c.layout);
  Pool pool(static_cast<size_t>(geometry.total_bytes()));
  fill(pool.data(), static_cast<size_t>(geometry.total_bytes()), c.dtype);
  const KvCacheView cache = geometry.view(pool.data());

  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937 shuffle(7);
  if (c.page_size) std::shuffle(pages.begin(), pages.end(), shuffle);

  const int64_t q_elements = int64_t{c.num_requests} * c.num_query_heads * c.head_dim;
  std::vector<std::byte> q(static_cast<size_t>(q_elements) * size_of(c.dtype)), out(q.size());
  fill(q.data(), q.size(), c.dtype);
  std::vector<int32_t> query_start(static_cast<size_t>(c.num_requests) + 1);
  std::iota(query_start.begin(), query_start.end(), 0);
  const std::vector<int32_t> kv_len(static_cast<size_t>(c.num_requests), c.kv_len);

  Context context({.num_threads = c.num_threads, .parallel_for = {}, .isa = c.isa, .log = {}});
  SelectOptions options;
  options.backend = "cpu";
  options.layout = c.layout;
  Attention attention(context, spec, options);
  Threads readers(c.num_threads);

  // The pages of a set as runs, in the order the kernel takes them; K and V of a page that touch
  // are one run.
  std::vector<std::vector<Run>> runs(static_cast<size_t>(num_sets));
  const auto element = static_cast<int64_t>(size_of(c.dtype));
  for (int64_t s = 0; s < num_sets; s++)
    for (int64_t i = 0; i < pages_per_set; i++) {
      const int64_t id = pages[static_cast<size_t>(s * pages_per_set + i)];
      auto* k = static_cast<std::byte*>(cache.k.data) + id * cache.k.stride[0] * element;
      auto* v = static_cast<std::byte*>(cache.v.data) + id * cache.v.stride[0] * element;
      runs[static_cast<size_t>(s)].push_back({k, page_bytes / 2});
      runs[static_cast<size_t>(s)].push_back({v, page_bytes / 2});
    }

  const TensorView q_view =
      TensorView::contiguous(q.data(), c.dtype, {c.num_requests, c.num_query_heads, c.head_dim});
  const TensorView out_view =
      TensorView::contiguous(out.data(), c.dtype, {c.num_requests, c.num_query_heads, c.head_dim});
  std::vector<double> kernel, walk, walk_prefetch, sequential, plan_us;
  DecodeFigures figures;
  figures.bytes = pages_per_set * page_bytes;
  const auto rate = [&](double took) { return static_cast<double>(figures.bytes) / took; };
  std::vector<std::byte> workspace;
  auto step = [&](int64_t s) {
    Batch batch;
    batch.query_start = query_start;
    batch.kv_len = kv_len;
    batch.page_table = TensorView::contiguous(pages.data() + s * pages_per_set, DType::kInt32,
                                              {c.num_requests, pages_per_request});
    batch.num_pages = num_pages;
    const double planned = seconds_now();
    const Plan plan = attention.plan(batch);
    plan_us.push_back((seconds_now() - planned) * 1e6);
    if (workspace.size() < plan.workspace_bytes() + kWorkspaceAlignment)
      workspace.resize(plan.workspace_bytes() + kWorkspaceAlignment);
    RunArgs args;
    args.q = q_view;
    args.k = cache.k;
    args.v = cache.v;
    args.out = out_view;
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    args.workspace = {reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) /
                                              kWorkspaceAlignment * kWorkspaceAlignment),
                      plan.workspace_bytes()};
    const double start = seconds_now();
    attention.run(plan, args);
    return seconds_now() - start;
  };
  std::vector<Run> in_order;
  for (int64_t i = 0; i < c.num_threads; i++)
    in_order.push_back({nullptr, figures.bytes / c.num_threads / 64 * 64});

  const double end = seconds_now() + seconds;
  const bool cold = num_sets > 1;
  auto turn = [&](std::vector<double>& into, auto measure_set) {
    // All sets once, so that none is found where the measurement before left it. A warm set is
    // read a few times before it counts.
    constexpr int64_t kWarmUp = 3, kWarmRuns = 5;
    double took = 0;
    for (int64_t i = 0; i < kWarmUp && !cold; i++) measure_set(0);
    const int64_t count = cold ? num_sets : kWarmRuns;
    for (int64_t i = 0; i < count; i++) took += measure_set(cold ? i : 0);
    into.push_back(rate(took / static_cast<double>(count)));
  };
  do {
    turn(kernel, step);
    turn(walk, [&](int64_t s) { return read_runs(readers, runs[static_cast<size_t>(s)]); });
    turn(walk_prefetch,
         [&](int64_t s) { return read_runs(readers, runs[static_cast<size_t>(s)], 16 << 10); });
    turn(sequential, [&](int64_t s) {
      for (size_t i = 0; i < in_order.size(); i++)
        in_order[i].data =
            pool.data() + s * figures.bytes + static_cast<int64_t>(i) * in_order[i].bytes;
      return read_runs(readers, in_order);
    });
  } while (seconds_now() < end);
  figures.kernel = spread_of(kernel);
  figures.page_walk = spread_of(walk);
  figures.page_walk_prefetch = spread_of(walk_prefetch);
  figures.sequential = spread_of(sequential);
  figures.plan_us = spread_of(plan_us).median;
  return figures;
}

}  // namespace rapt::bench
