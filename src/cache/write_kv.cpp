#include "cache/write_kv.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/check.hpp"
#include "core/elements.hpp"
#include "core/strides.hpp"

namespace rapt {
namespace {

// Below this a task costs more to hand out than to copy.
constexpr int64_t kBytesPerTask = 64 << 10;

// One of the two scatters: `rows` [T', Hkv, D] into `cache` [num_pages, page_size, Hkv, D].
class Scatter {
 public:
  Scatter(const TensorView& rows, const TensorView& cache, const TensorView& scale)
      : source_(static_cast<const std::byte*>(rows.data)),
        target_(static_cast<std::byte*>(cache.data)),
        source_dtype_(rows.dtype),
        target_dtype_(cache.dtype),
        source_token_(stride_of(rows, 0)),
        source_head_(stride_of(rows, 1)),
        target_page_(stride_of(cache, 0)),
        target_token_(stride_of(cache, 1)),
        target_head_(stride_of(cache, 2)),
        page_size_(cache.shape[1]),
        num_heads_(cache.shape[2]),
        head_dim_(cache.shape[3]) {
    if (scale.has_value()) {
      scales_ = static_cast<const float*>(scale.data);
      scale_step_ = stride_of(scale, 0);
    }
    copies_bytes_ = scales_ == nullptr && source_dtype_ == target_dtype_;
    const bool heads_contiguous =
        num_heads_ == 1 || (source_head_ == head_dim_ && target_head_ == head_dim_);
    num_runs_ = heads_contiguous ? 1 : num_heads_;
    run_bytes_ = num_heads_ / num_runs_ * head_dim_ * static_cast<int64_t>(size_of(target_dtype_));
  }

  void write(int64_t token, int64_t slot) const {
    const int64_t source = token * source_token_;
    const int64_t target = slot / page_size_ * target_page_ + slot % page_size_ * target_token_;
    if (copies_bytes_)
      copy(source, target);
    else
      convert(source, target);
  }

  int64_t token_bytes() const { return num_runs_ * run_bytes_; }

 private:
  void copy(int64_t source, int64_t target) const {
    const auto bytes = static_cast<int64_t>(size_of(target_dtype_));
    for (int64_t run = 0; run < num_runs_; run++)
      std::memcpy(target_ + (target + run * target_head_) * bytes,
                  source_ + (source + run * source_head_) * bytes, static_cast<size_t>(run_bytes_));
  }

  void convert(int64_t source, int64_t target) const {
    for (int64_t head = 0; head < num_heads_; head++) {
      const float scale = scales_ ? scales_[head * scale_step_] : 1.0f;
      for (int64_t i = 0; i < head_dim_; i++)
        store_element(
            target_, target_dtype_, target + head * target_head_ + i,
            load_element(source_, source_dtype_, source + head * source_head_ + i) / scale);
    }
  }

  const std::byte* source_;
  std::byte* target_;
  DType source_dtype_, target_dtype_;
  // Strides in elements.
  int64_t source_token_, source_head_, target_page_, target_token_, target_head_;
  int64_t page_size_, num_heads_, head_dim_;
  const float* scales_ = nullptr;  // [Hkv], or one for all heads with a step of 0
  int64_t scale_step_ = 0;
  bool copies_bytes_;
  int64_t num_runs_, run_bytes_;  // pieces of a token's row that are contiguous on both sides
};

}  // namespace

void write_kv(const WriteKvArgs& args, const ParallelFor& parallel_for, int32_t num_threads) {
  const int64_t num_slots = args.slot_mapping.shape[0];
  if (num_slots == 0) return;
  const auto* slots = static_cast<const int64_t*>(args.slot_mapping.data);
  const Scatter k(args.k, args.cache.k, args.k_scale), v(args.v, args.cache.v, args.v_scale);
  auto write = [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; token++) {
      if (slots[token] < 0) continue;
      k.write(token, slots[token]);
      v.write(token, slots[token]);
    }
  };
  const int64_t bytes = num_slots * (k.token_bytes() + v.token_bytes());
  const auto num_tasks = static_cast<int32_t>(
      std::min({ceil_div(bytes, kBytesPerTask), int64_t{num_threads}, num_slots}));
  if (num_tasks <= 1) return write(0, num_slots);
  parallel_for(num_tasks, [&](int32_t task) {
    write(num_slots * task / num_tasks, num_slots * (task + 1) / num_tasks);
  });
}

}  // namespace rapt
