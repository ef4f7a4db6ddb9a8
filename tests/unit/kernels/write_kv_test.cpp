// Writing a cache on the emulator: every byte of it.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cache_kernels.hpp"

namespace rapt::emulator {
namespace {

constexpr int kHeads = 3, kKBytes = 144, kVBytes = 80, kPages = 4, kPageSize = 5;

// A cache whose pages hold a K plane and a V plane, heads within tokens or tokens within heads.
void expect_written(bool heads_within_tokens, const std::vector<long long>& slots,
                    int chunk_bytes) {
  Memory memory;
  const auto num_tokens = static_cast<int>(slots.size());
  const auto slot_mapping = memory.allocate<long long>(slots.size(), "slots");
  std::copy(slots.begin(), slots.end(), slot_mapping.begin());
  // In chunks of 2 bytes nothing lies at a multiple of 4.
  const size_t odd = chunk_bytes == 2 ? 2 : 0;
  const auto k =
      memory.allocate<unsigned char>(num_tokens * kHeads * kKBytes + odd, "k").subspan(odd);
  const auto v = memory.allocate<unsigned char>(num_tokens * kHeads * kVBytes, "v");
  for (size_t i = 0; i < k.size(); i++) k[i] = static_cast<unsigned char>(i * 7 + i / 251);
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<unsigned char>(i * 11 + i / 241 + 1);
  constexpr int kKPage = kPageSize * kHeads * kKBytes, kVPage = kPageSize * kHeads * kVBytes;
  const auto cache = memory.allocate<unsigned char>(kPages * (kKPage + kVPage), "cache");

  device::WriteKvParams params{};
  params.slots = slot_mapping.data(), params.num_tokens = num_tokens, params.num_heads = kHeads;
  params.chunk_bytes = chunk_bytes;
  params.k_bytes = kKBytes, params.v_bytes = kVBytes, params.page_size = kPageSize;
  params.k = k.data(), params.v = v.data();
  params.cache_k = cache.data(), params.cache_v = cache.data() + kKPage;
  params.k_head_stride = kKBytes, params.k_token_stride = kHeads * kKBytes;
  params.v_head_stride = kVBytes, params.v_token_stride = kHeads * kVBytes;
  params.cache_k_page_stride = params.cache_v_page_stride = kKPage + kVPage;
  params.cache_k_head_stride = heads_within_tokens ? kKBytes : kPageSize * kKBytes;
  params.cache_v_head_stride = heads_within_tokens ? kVBytes : kPageSize * kVBytes;
  params.cache_k_token_stride = heads_within_tokens ? kHeads * kKBytes : kKBytes;
  params.cache_v_token_stride = heads_within_tokens ? kHeads * kVBytes : kVBytes;

  std::vector<unsigned char> expected(cache.begin(), cache.end());
  for (int token = 0; token < num_tokens; token++) {
    if (slots[token] < 0) continue;
    unsigned char* page = expected.data() + slots[token] / kPageSize * (kKPage + kVPage);
    const long long offset = slots[token] % kPageSize;
    for (int head = 0; head < kHeads; head++) {
      std::copy_n(&k[(token * kHeads + head) * kKBytes], kKBytes,
                  page + head * params.cache_k_head_stride + offset * params.cache_k_token_stride);
      std::copy_n(
          &v[(token * kHeads + head) * kVBytes], kVBytes,
          page + kKPage + head * params.cache_v_head_stride + offset * params.cache_v_token_stride);
    }
  }
  run_write_kv(memory, {}, params);
  EXPECT_TRUE(std::equal(cache.begin(), cache.end(), expected.begin()));
}

TEST(WriteKvKernel, writes_the_slots_and_nothing_else) {
  for (const bool heads_within_tokens : {true, false}) {
    for (const int chunk_bytes : {2, 16}) {
      expect_written(heads_within_tokens, {7, 0, 19, 4, 5}, chunk_bytes);
      expect_written(heads_within_tokens, {-1, 3, -5}, chunk_bytes);
    }
  }
}

}  // namespace
}  // namespace rapt::emulator
