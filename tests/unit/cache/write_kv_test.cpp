// The CPU cache writer: the right bytes at the named slots, and not one byte elsewhere.
#include "cache/write_kv.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "core/elements.hpp"
#include "core/thread_pool.hpp"

namespace rapt {
namespace {

constexpr std::byte kSentinel{0xA5};

const ParallelFor kSerial = [](int32_t num_tasks, const std::function<void(int32_t)>& task) {
  for (int32_t i = 0; i < num_tasks; i++) task(i);
};

// Random values of a packed QKV tensor [T, Hq + 2 * Hkv, D]: k and v are strided views of it.
struct PackedQkv {
  int64_t num_tokens, num_query_heads, num_kv_heads, head_dim;
  DType dtype;
  std::vector<std::byte> data;

  PackedQkv(int64_t tokens, int64_t query_heads, int64_t kv_heads, int64_t dim, DType type)
      : num_tokens(tokens),
        num_query_heads(query_heads),
        num_kv_heads(kv_heads),
        head_dim(dim),
        dtype(type),
        data(static_cast<size_t>(tokens * (query_heads + 2 * kv_heads) * dim) * size_of(type)) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> value(-3, 3);
    for (size_t i = 0; i < data.size() / size_of(type); i++)
      store_element(data.data(), type, static_cast<int64_t>(i), value(random));
  }

  TensorView part(int64_t first_head) const {
    const int64_t token_stride = (num_query_heads + 2 * num_kv_heads) * head_dim;
    return TensorView::strided(data.data() + first_head * head_dim * size_of(dtype), dtype,
                               {num_tokens, num_kv_heads, head_dim}, {token_stride, head_dim, 1});
  }
  TensorView k() const { return part(num_query_heads); }
  TensorView v() const { return part(num_query_heads + num_kv_heads); }
};

int64_t source_offset(const TensorView& rows, int64_t token, int64_t head, int64_t dim) {
  return token * rows.stride[0] + head * rows.stride[1] + dim;
}

int64_t cache_offset(const TensorView& cache, int64_t slot, int64_t head, int64_t dim) {
  const int64_t page_size = cache.shape[1];
  return slot / page_size * cache.stride[0] + slot % page_size * cache.stride[1] +
         head * cache.stride[2] + dim;
}

// Element by element, what the pool must hold after the write.
void expect_written(std::byte* pool, const TensorView& rows, const TensorView& cache,
                    const std::vector<int64_t>& slots, const auto& scale_of) {
  auto* base = pool + (static_cast<std::byte*>(cache.data) - pool);
  for (int64_t token = 0; token < std::ssize(slots); token++)
    for (int64_t head = 0; slots[token] >= 0 && head < rows.shape[1]; head++)
      for (int64_t dim = 0; dim < rows.shape[2]; dim++)
        store_element(base, cache.dtype, cache_offset(cache, slots[token], head, dim),
                      load_element(rows.data, rows.dtype, source_offset(rows, token, head, dim)) /
                          scale_of(head));
}

TensorView slots_view(const std::vector<int64_t>& slots) {
  return TensorView::contiguous(slots.data(), DType::kInt64, {std::ssize(slots)});
}

struct Outcome {
  std::vector<std::byte> written, expected;
};

// Fills a pool with sentinels, writes through write_kv() and, element by element, by hand.
Outcome write_both_ways(const KvCacheGeometry& geometry, const PackedQkv& qkv,
                        const std::vector<int64_t>& slots, const ParallelFor& parallel_for,
                        int32_t num_threads) {
  Outcome outcome;
  outcome.written.assign(geometry.total_bytes(), kSentinel);
  outcome.expected = outcome.written;
  const int32_t layer = geometry.num_layers > 0 ? geometry.num_layers - 1 : 0;
  write_kv({.k = qkv.k(),
            .v = qkv.v(),
            .slot_mapping = slots_view(slots),
            .cache = geometry.view(outcome.written.data(), layer)},
           parallel_for, num_threads);
  const KvCacheView expected = geometry.view(outcome.expected.data(), layer);
  auto unscaled = [](int64_t) { return 1.0f; };
  expect_written(outcome.expected.data(), qkv.k(), expected.k, slots, unscaled);
  expect_written(outcome.expected.data(), qkv.v(), expected.v, slots, unscaled);
  return outcome;
}

KvFormat format_of(DType dtype) {
  return dtype == DType::kFloat32   ? KvFormat::kFloat32
         : dtype == DType::kFloat16 ? KvFormat::kFloat16
                                    : KvFormat::kBFloat16;
}

// Public report B04: T = 5, 3 heads, slots [0, 17, -1, 33, 16], pages of 16; D = 72 and 80 are no
// multiple of a vector; k and v are slices of packed QKV.
TEST(WriteKv, B04_changes_the_named_slots_and_no_other_byte) {
  const std::vector<int64_t> slots = {0, 17, -1, 33, 16};
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (int64_t head_dim : {64, 72, 80})
      for (KvShape shape : {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked})
        for (KvLayout layout : {KvLayout::kNHD, KvLayout::kHND})
          for (int32_t layers : {0, 2}) {
            SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(shape) + " " +
                         to_string(layout) + " D " + std::to_string(head_dim));
            const PackedQkv qkv(5, 6, 3, head_dim, dtype);
            const KvCacheGeometry geometry{.shape = shape,
                                           .layout = layout,
                                           .num_pages = 3,
                                           .page_size = 16,
                                           .num_kv_heads = 3,
                                           .head_dim_qk = static_cast<int32_t>(head_dim),
                                           .format = format_of(dtype),
                                           .num_layers = layers};
            const Outcome outcome = write_both_ways(geometry, qkv, slots, kSerial, 1);
            EXPECT_TRUE(outcome.written == outcome.expected);
          }
}

TEST(WriteKv, threads_write_the_same_bytes) {
  ThreadPool pool(3);
  const ParallelFor parallel_for = [&](int32_t n, const std::function<void(int32_t)>& task) {
    pool.run(n, task);
  };
  std::vector<int64_t> slots(700);
  for (size_t i = 0; i < slots.size(); i++)
    slots[i] = i % 7 == 3 ? -1 : static_cast<int64_t>(i * 389 % 701);  // a permutation with holes
  const PackedQkv qkv(700, 4, 4, 64, DType::kBFloat16);
  for (KvLayout layout : {KvLayout::kNHD, KvLayout::kHND}) {
    const KvCacheGeometry geometry{
        .layout = layout, .num_pages = 44, .num_kv_heads = 4, .head_dim_qk = 64};
    const Outcome outcome = write_both_ways(geometry, qkv, slots, parallel_for, 3);
    EXPECT_TRUE(outcome.written == outcome.expected);
  }
}

TEST(WriteKv, value_rows_may_be_shorter_than_key_rows) {
  const PackedQkv keys(4, 0, 2, 24, DType::kFloat32), values(4, 0, 2, 8, DType::kFloat32);
  const KvCacheGeometry geometry{.shape = KvShape::kPacked,
                                 .num_pages = 2,
                                 .page_size = 3,
                                 .num_kv_heads = 2,
                                 .head_dim_qk = 24,
                                 .head_dim_vo = 8,
                                 .format = KvFormat::kFloat32};
  const std::vector<int64_t> slots = {5, 0, 3, 1};
  std::vector<std::byte> written(geometry.total_bytes(), kSentinel), expected = written;
  write_kv({.k = keys.k(),
            .v = values.v(),
            .slot_mapping = slots_view(slots),
            .cache = geometry.view(written.data())},
           kSerial, 1);
  auto unscaled = [](int64_t) { return 1.0f; };
  expect_written(expected.data(), keys.k(), geometry.view(expected.data()).k, slots, unscaled);
  expect_written(expected.data(), values.v(), geometry.view(expected.data()).v, slots, unscaled);
  EXPECT_TRUE(written == expected);
}

TEST(WriteKv, rows_past_the_slots_are_not_read) {
  PackedQkv qkv(3, 0, 1, 8, DType::kFloat32);
  const TensorView all = qkv.k();
  for (int64_t dim = 0; dim < 8; dim++)
    store_element(all.data, all.dtype, source_offset(all, 2, 0, dim), NAN);
  const KvCacheGeometry geometry{.num_pages = 1,
                                 .page_size = 4,
                                 .num_kv_heads = 1,
                                 .head_dim_qk = 8,
                                 .format = KvFormat::kFloat32};
  std::vector<float> pool(64, 0.5f);
  write_kv({.k = qkv.k(),
            .v = qkv.v(),
            .slot_mapping = slots_view({3, 1}),
            .cache = geometry.view(pool.data())},
           kSerial, 1);
  for (float value : pool) EXPECT_FALSE(std::isnan(value));
}

TEST(WriteKv, stored_is_value_over_scale_rounded_to_the_cache_type) {
  const std::vector<int64_t> slots = {2, -5, 7, 0};
  const std::vector<float> per_head = {0.25f, 3.0f}, per_tensor = {0.7f};
  for (DType source : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (KvFormat format : {KvFormat::kFloat32, KvFormat::kFloat16, KvFormat::kBFloat16})
      for (bool heads : {false, true}) {
        const PackedQkv qkv(4, 2, 2, 40, source);
        const KvCacheGeometry geometry{.layout = KvLayout::kHND,
                                       .num_pages = 2,
                                       .page_size = 4,
                                       .num_kv_heads = 2,
                                       .head_dim_qk = 40,
                                       .format = format};
        std::vector<std::byte> written(geometry.total_bytes(), kSentinel), expected = written;
        const std::vector<float>& scales = heads ? per_head : per_tensor;
        const TensorView scale =
            TensorView::contiguous(scales.data(), DType::kFloat32, {std::ssize(scales)});
        write_kv({.k = qkv.k(),
                  .v = qkv.v(),
                  .slot_mapping = slots_view(slots),
                  .cache = geometry.view(written.data()),
                  .k_scale = scale,
                  .v_scale = scale},
                 kSerial, 1);
        auto scale_of = [&](int64_t head) { return heads ? per_head[head] : per_tensor[0]; };
        const KvCacheView view = geometry.view(expected.data());
        expect_written(expected.data(), qkv.k(), view.k, slots, scale_of);
        expect_written(expected.data(), qkv.v(), view.v, slots, scale_of);
        EXPECT_TRUE(written == expected) << to_string(source) << " to " << to_string(format);
      }
}

TEST(WriteKv, rotated_keys_are_divided_by_their_scale) {  // by a right angle, half-split
  const std::vector<float> row = {1, 2, 3, 4, 5}, scale = {2.0f}, cos_sin = {0, 0, 1, 1};
  const std::vector<int64_t> slots = {0};
  const std::vector<int32_t> positions = {0};
  std::vector<float> pool(10, -1.0f);
  const KvCacheGeometry geometry{.num_pages = 1,
                                 .page_size = 1,
                                 .num_kv_heads = 1,
                                 .head_dim_qk = 5,
                                 .format = KvFormat::kFloat32};
  const TensorView rows = TensorView::contiguous(row.data(), DType::kFloat32, {1, 1, 5});
  write_kv(
      {.k = rows,
       .v = rows,
       .slot_mapping = slots_view(slots),
       .cache = geometry.view(pool.data()),
       .k_scale = TensorView::contiguous(scale.data(), DType::kFloat32, {1}),
       .rope =
           RopeArgs{.positions = TensorView::contiguous(positions.data(), DType::kInt32, {1}),
                    .cos_sin = TensorView::contiguous(cos_sin.data(), DType::kFloat32, {1, 4})}},
      kSerial, 1);
  EXPECT_EQ(pool, (std::vector<float>{-1.5f, -2, 0.5f, 1, 2.5f, 1, 2, 3, 4, 5}));
}

TEST(WriteKv, bfloat16_of_a_third_is_rounded_to_nearest) {  // by hand: 0x3eab is 0.333984375
  const std::vector<float> row = {1.0f};
  const std::vector<float> scale = {3.0f};
  const std::vector<int64_t> slots = {0};
  std::vector<uint16_t> pool(2, 0xffff);
  const KvCacheGeometry geometry{
      .num_pages = 1, .page_size = 1, .num_kv_heads = 1, .head_dim_qk = 1};
  const TensorView rows = TensorView::contiguous(row.data(), DType::kFloat32, {1, 1, 1});
  const TensorView scales = TensorView::contiguous(scale.data(), DType::kFloat32, {1});
  write_kv({.k = rows,
            .v = rows,
            .slot_mapping = slots_view(slots),
            .cache = geometry.view(pool.data()),
            .k_scale = scales},
           kSerial, 1);
  EXPECT_EQ(pool[0], 0x3eab);
  EXPECT_EQ(pool[1], 0x3f80) << "v has no scale";
}

// Public report C01: page 65536 of this pool starts at byte 2^32. Only touched pages take memory.
TEST(WriteKv, reaches_pages_past_four_gibibytes) {
  const KvCacheGeometry geometry{.num_pages = 65538, .num_kv_heads = 8, .head_dim_qk = 128};
  const auto bytes = static_cast<size_t>(geometry.total_bytes());
  ASSERT_GT(bytes, size_t{1} << 32);
  void* pool = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pool, MAP_FAILED) << "no 4 GiB of address space";
  const PackedQkv qkv(3, 0, 8, 128, DType::kBFloat16);
  const std::vector<int64_t> slots = {65535 * 16 + 15, 65536 * 16 + 5, 65537 * 16};
  const KvCacheView view = geometry.view(pool);
  write_kv({.k = qkv.k(), .v = qkv.v(), .slot_mapping = slots_view(slots), .cache = view}, kSerial,
           1);
  const auto* elements = static_cast<const uint16_t*>(pool);
  const TensorView sources[] = {qkv.k(), qkv.v()};
  for (int64_t token = 0; token < 3; token++)
    for (int64_t kv = 0; kv < 2; kv++)
      for (int64_t head = 0; head < 8; head++) {
        const int64_t page = slots[token] / 16, offset = slots[token] % 16;
        const int64_t target = (((page * 2 + kv) * 16 + offset) * 8 + head) * 128;
        const auto* source = static_cast<const uint16_t*>(sources[kv].data) +
                             source_offset(sources[kv], token, head, 0);
        EXPECT_EQ(std::memcmp(elements + target, source, 128 * 2), 0);
      }
  for (int64_t i = 0; i < 2 * 32768; i++)  // where a 32-bit offset would have wrapped to
    ASSERT_EQ(elements[i], 0);
  munmap(pool, bytes);
}

}  // namespace
}  // namespace rapt
