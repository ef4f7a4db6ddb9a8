#include "cache/write_kv.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "core/check.hpp"
#include "core/elements.hpp"
#include "core/float16.hpp"
#include "core/strides.hpp"

namespace rapt {
namespace {

// Below this a task costs more to hand out than to copy.
constexpr int64_t kBytesPerTask = 64 << 10;

// Element types as they are stored, and as numbers.
struct Float32 {
  using Stored = float;
  static float load(float value) { return value; }
  static float round(float value) { return value; }
};
struct Float16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return float16_to_float(bits); }
  static uint16_t round(float value) { return float_to_float16(value); }
};
struct BFloat16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return bfloat16_to_float(bits); }
  static uint16_t round(float value) { return float_to_bfloat16(value); }
};
template <typename Visit>
void with_type(DType dtype, const Visit& visit) {
  if (dtype == DType::kFloat32) return visit(Float32{});
  if (dtype == DType::kFloat16) return visit(Float16{});
  visit(BFloat16{});
}

// The rotations of RopeArgs.
class Rope {
 public:
  explicit Rope(const RopeArgs& args)
      : positions_(args.positions.data),
        wide_(args.positions.dtype == DType::kInt64),
        interleaved_(args.style == RopeStyle::kInterleaved),
        cos_sin_(static_cast<const float*>(args.cos_sin.data)),
        position_stride_(stride_of(args.cos_sin, 0)),
        num_pairs_(args.cos_sin.shape[1] / 2) {}

  // A row of that many elements, which may be rotated in place: to[i] = rotated from[i] / scale.
  void rotate(int64_t token, const std::byte* from, DType from_dtype, int64_t first, std::byte* to,
              DType to_dtype, int64_t to_first, int64_t num_elements, float scale) const {
    const int64_t position = wide_ ? static_cast<const int64_t*>(positions_)[token]
                                   : static_cast<const int32_t*>(positions_)[token];
    const float* cos_sin = cos_sin_ + position * position_stride_;
    with_type(from_dtype, [&](auto from_type) {
      with_type(to_dtype, [&](auto to_type) {
        using From = decltype(from_type);
        using To = decltype(to_type);
        const auto* row = reinterpret_cast<const typename From::Stored*>(from) + first;
        auto* to_row = reinterpret_cast<typename To::Stored*>(to) + to_first;
        if (interleaved_)
          rotate_pairs<2, From, To>(row, to_row, 1, cos_sin, scale);
        else
          rotate_pairs<1, From, To>(row, to_row, num_pairs_, cos_sin, scale);
        for (int64_t i = 2 * num_pairs_; i < num_elements; i++)
          to_row[i] = To::round(From::load(row[i]) / scale);
      });
    });
  }

 private:
  // kStep: from a pair to the next; partner: from its first element to its second. Some at a time
  // are held apart, since to may be from, which would keep the loops from being vectorised.
  template <int64_t kStep, typename From, typename To>
  void rotate_pairs(const typename From::Stored* from, typename To::Stored* to, int64_t partner,
                    const float* cos, float scale) const {
    constexpr int64_t kAtATime = 64;
    float x[kAtATime], y[kAtATime];
    const float* sin = cos + num_pairs_;
    for (int64_t begin = 0; begin < num_pairs_; begin += kAtATime) {
      const int64_t count = std::min(kAtATime, num_pairs_ - begin), at = begin * kStep;
      for (int64_t i = 0; i < count; i++) {
        x[i] = From::load(from[at + i * kStep]);
        y[i] = From::load(from[at + i * kStep + partner]);
      }
      for (int64_t i = 0; i < count; i++) {
        const float c = cos[begin + i], s = sin[begin + i];
        const float first = (x[i] * c - y[i] * s) / scale;
        y[i] = (y[i] * c + x[i] * s) / scale;
        x[i] = first;
      }
      for (int64_t i = 0; i < count; i++) {
        to[at + i * kStep] = To::round(x[i]);
        to[at + i * kStep + partner] = To::round(y[i]);
      }
    }
  }

  const void* positions_;
  bool wide_, interleaved_;
  const float* cos_sin_;
  int64_t position_stride_, num_pairs_;
};

// The queries of RopeArgs.
class RotatedQueries {
 public:
  RotatedQueries(const RopeArgs& args, const Rope& rope) : args_(args), rope_(rope) {}

  void write(int64_t token) const {
    const TensorView &q = args_.q, &out = args_.q_out;
    for (int64_t head = 0; head < q.shape[1]; head++)
      rope_.rotate(token, static_cast<const std::byte*>(q.data), q.dtype,
                   token * stride_of(q, 0) + head * stride_of(q, 1),
                   static_cast<std::byte*>(out.data), out.dtype,
                   token * stride_of(out, 0) + head * stride_of(out, 1), q.shape[2], 1.0f);
  }
  int64_t token_bytes() const {
    return args_.q.shape[1] * args_.q.shape[2] * static_cast<int64_t>(size_of(args_.q.dtype));
  }

 private:
  const RopeArgs& args_;
  const Rope& rope_;
};

// One of the two scatters: `rows` [T', Hkv, D] into `cache` [num_pages, page_size, Hkv, D].
class Scatter {
 public:
  // With `rope`, rotated.
  Scatter(const TensorView& rows, const TensorView& cache, const TensorView& scale,
          const Rope* rope = nullptr)
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
        head_dim_(cache.shape[3]),
        rope_(rope) {
    if (scale.has_value()) {
      scales_ = static_cast<const float*>(scale.data);
      scale_step_ = stride_of(scale, 0);
    }
    copies_bytes_ = !scales_ && !rope_ && source_dtype_ == target_dtype_;
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
    else if (rope_)
      rotate(token, source, target);
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

  float scale_of(int64_t head) const { return scales_ ? scales_[head * scale_step_] : 1.0f; }

  void rotate(int64_t token, int64_t source, int64_t target) const {
    for (int64_t head = 0; head < num_heads_; head++)
      rope_->rotate(token, source_, source_dtype_, source + head * source_head_, target_,
                    target_dtype_, target + head * target_head_, head_dim_, scale_of(head));
  }

  void convert(int64_t source, int64_t target) const {
    for (int64_t head = 0; head < num_heads_; head++) {
      const float scale = scale_of(head);
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
  const Rope* rope_;
  int64_t num_runs_, run_bytes_;  // pieces of a token's row that are contiguous on both sides
};

}  // namespace

void write_kv(const WriteKvArgs& args, const ParallelFor& parallel_for, int32_t num_threads) {
  const int64_t num_slots = args.slot_mapping.shape[0];
  if (num_slots == 0) return;
  const auto* slots = static_cast<const int64_t*>(args.slot_mapping.data);
  std::optional<Rope> rope;
  std::optional<RotatedQueries> queries;
  if (args.rope) {
    rope.emplace(*args.rope);
    if (args.rope->q.has_value()) queries.emplace(*args.rope, *rope);
  }
  const Scatter k(args.k, args.cache.k, args.k_scale, rope ? &*rope : nullptr);
  const Scatter v(args.v, args.cache.v, args.v_scale);
  auto write = [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; token++) {
      if (queries) queries->write(token);
      if (slots[token] < 0) continue;
      k.write(token, slots[token]);
      v.write(token, slots[token]);
    }
  };
  const int64_t token_bytes =
      k.token_bytes() + v.token_bytes() + (queries ? queries->token_bytes() : 0);
  const int64_t bytes = num_slots * token_bytes;
  const auto num_tasks = static_cast<int32_t>(
      std::min({ceil_div(bytes, kBytesPerTask), int64_t{num_threads}, num_slots}));
  if (num_tasks <= 1) return write(0, num_slots);
  parallel_for(num_tasks, [&](int32_t task) {
    write(num_slots * task / num_tasks, num_slots * (task + 1) / num_tasks);
  });
}

}  // namespace rapt
