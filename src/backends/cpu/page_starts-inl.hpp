// Which lines of K and V the tile kernel asks memory for before it reads them.
//
// Its loads leave the processor room to look ahead, and the processor's own prefetcher does so best
// where it may: it follows lines to the end of a memory page of 4 KiB. On the next one it starts
// anew, late. So the first lines of each page are asked for in advance, and others of short runs
// alone (docs/notes/2026-11-30-tile-decode.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/look_ahead-inl.hpp"

namespace rapt::cpu {
namespace {

// Where in PageStarts a kernel reads.
class PageAhead {
 public:
  static constexpr int kMost = 64;  // starts ahead, as far as they reach
  static constexpr int64_t kDistance = 32 << 10;
  static constexpr int64_t kAskedBytes = 256;  // of a start

  PageAhead() = default;
  // A start of `at` stands for so many bytes that are read; kMost may follow `*last`.
  PageAhead(const std::byte* const* at, const std::byte* const* last, int64_t bytes)
      : at_(at), last_(last), bytes_(bytes), ahead_(smaller<int64_t>(kDistance / bytes, kMost)) {}

  void go_on_from(const PageAhead& other) {
    at_ = other.at_;
    due_ = other.due_;
  }

  // kBytes more are being read.
  template <int kBytes>
  struct Ask {
    RAPT_ALWAYS_INLINE explicit Ask(PageAhead& ahead) {
      for (ahead.due_ += kBytes; ahead.due_ >= ahead.bytes_; ahead.due_ -= ahead.bytes_)
        ahead.ask();
    }
    template <int kShare, int kShares>
    RAPT_ALWAYS_INLINE void share() const {}
  };

 private:
  static constexpr int kLine = 64, kLines = kAskedBytes / kLine;

  RAPT_ALWAYS_INLINE void ask() {
    const std::byte* const start = at_[ahead_];
    unroll<kLines>([&](auto i) { __builtin_prefetch(start + i * kLine, 0, 2); });
    at_ += at_ < last_;
  }

  const std::byte* const* at_ = nullptr;
  int64_t due_ = 0;
  const std::byte* const* last_ = nullptr;
  int64_t bytes_ = 1, ahead_ = 0;
};

// The memory pages of a block of keys in the order of memory, then the first of the next.
class PageStarts : public AddressList<PageAhead::kMost + 1> {  // at_ may come to last_ itself
 public:
  using Ahead = PageAhead;
  static constexpr int64_t kPageBytes = 4096;
  // A run of two pages or less ends before the prefetcher is of use: it is asked for whole.
  static int64_t unit_of(int64_t bytes) {
    return bytes > 2 * kPageBytes ? kPageBytes : PageAhead::kAskedBytes;
  }
  static int64_t pieces_of(int64_t bytes) { return (bytes + unit_of(bytes) - 1) / unit_of(bytes); }

  // `storage` has room for as much as a PieceList.
  explicit PageStarts(std::byte* storage) : AddressList(storage) {}
  static_assert(PageAhead::kMost < PieceList::kPadding);

  void add(const std::byte* run, int64_t bytes) {
    const int64_t starts = smaller(pieces_of(bytes), limit_ - end_);
    const int64_t unit = unit_of(bytes);
    const std::byte* const page = run - reinterpret_cast<uintptr_t>(run) % unit;
    for (int64_t i = 0; i < starts; i++) end_[i] = page + i * unit;
    *end_ = run;
    end_ += starts;
  }

  PageAhead from(int64_t start, int64_t row_bytes) const {
    return {first_ + start, last_, smaller(row_bytes, unit_of(row_bytes))};
  }
};

}  // namespace
}  // namespace rapt::cpu
