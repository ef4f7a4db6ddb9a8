// Which lines of K and V the decode kernel asks memory for before it reads them.
//
// A kernel that waits for memory issues its prefetches in bursts, and a processor drops those that
// find its miss buffers taken; a dropped line then costs the whole latency, and while it is waited
// for nothing else is asked for. So every line is asked for three times, 4 KiB apart: far enough
// for buffers to come free, near enough for the line to stay in L1. On Zen 5 one prefetch gives
// 80 %, two 92 %, three 100 % of what a plain walk of the same pages reads
// (docs/notes/2026-11-29-cpu-decode.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

// Pieces of 256 bytes in the order in which they are read, of the current block of keys and of the
// next.
class LookAhead {
 public:
  static constexpr int kPieceBytes = 256;
  static constexpr int kTimes = 3, kDistance = 16;  // pieces
  static constexpr int kPadding = kTimes * kDistance;

  static constexpr int64_t pieces_of(int64_t bytes) {
    return (bytes + kPieceBytes - 1) / kPieceBytes;
  }

  // `storage` has room for the pieces of two blocks and kPadding more.
  explicit LookAhead(std::byte* storage)
      : first_(reinterpret_cast<const std::byte**>(storage)), next_(first_), end_(first_) {}

  // What was added since the last call becomes the current block.
  void advance() {
    const auto count = end_ - next_;  // at least 1
    __builtin_memmove(first_, next_, static_cast<size_t>(count) * sizeof *first_);
    next_ = end_ = first_ + count;
    // Nothing is known yet of what comes after.
    for (int i = 0; i < kPadding; i++) end_[i] = end_[-1];
  }
  // Runs of as many bytes, at most kRuns, piece by piece, are of the block after the current one.
  template <int kRuns>
  void add(const std::byte* const* runs, int num_runs, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += kPieceBytes) {
      if (num_runs == kRuns) {
        for (int r = 0; r < kRuns; r++) end_[r] = runs[r] + i;
      } else {
        for (int r = 0; r < num_runs; r++) end_[r] = runs[r] + i;
      }
      end_ += num_runs;
    }
  }
  // That piece of the current block is read now.
  void seek(int64_t piece) {
    at_ = first_ + piece;
    due_ = 0;
  }

  // kBytes more of the current block are being read, and as much further on is to be asked for:
  // whole pieces in kShares equal shares among the products, share<0>() to share<kShares - 1>(),
  // less in one go.
  template <int kBytes>
  class Ask {
   public:
    RAPT_ALWAYS_INLINE explicit Ask(LookAhead& ahead) {
      if constexpr (kWhole) {
        unroll<kPieces>([&](auto i) { take(ahead, pieces_[i]); });
        return;
      }
      for (ahead.due_ += kBytes; ahead.due_ >= kPieceBytes; ahead.due_ -= kPieceBytes) {
        take(ahead, pieces_[0]);
        unroll<kPieceBytes / kLine>([&](auto i) { fetch<i>(); });
      }
    }
    template <int kShare, int kShares>
    RAPT_ALWAYS_INLINE void share() const {
      constexpr int kLines = kWhole ? kBytes / kLine : 0, kFirst = kShare * kLines / kShares;
      unroll<(kShare + 1) * kLines / kShares - kFirst>([&](auto i) { fetch<kFirst + i>(); });
    }

   private:
    static constexpr bool kWhole = kBytes % kPieceBytes == 0;
    static constexpr int kPieces = kWhole ? kBytes / kPieceBytes : 1;

    RAPT_ALWAYS_INLINE static void take(LookAhead& ahead, const std::byte* (&piece)[kTimes]) {
      unroll<kTimes>([&](auto k) { piece[k] = ahead.at_[(k + 1) * kDistance - 1]; });
      if (ahead.at_ < ahead.next_) ahead.at_++;  // rows of odd sizes are counted generously
    }
    template <int kIndex>
    RAPT_ALWAYS_INLINE void fetch() const {
      constexpr int kAt = kIndex * kLine;
      unroll<kTimes>([&](auto k) {
        __builtin_prefetch(pieces_[kAt / kPieceBytes][k] + kAt % kPieceBytes, 0, 3);
      });
    }

    const std::byte* pieces_[kPieces][kTimes];
  };

 private:
  static constexpr int kLine = 64;

  const std::byte **first_, **next_, **end_;  // [first_, next_) of the current block
  const std::byte** at_ = nullptr;            // the piece that is being read
  int due_ = 0;                               // bytes of it that have been read
};

// For rows that read again what others have read.
struct NoLookAhead {
  template <int kBytes>
  struct Ask {
    explicit Ask(NoLookAhead) {}
    template <int kShare, int kShares>
    void share() const {}
  };
};

}  // namespace
}  // namespace rapt::cpu
