// Which lines of K and V the decode kernel asks memory for before it reads them.
//
// A kernel that waits for memory issues its prefetches in bursts, and a processor drops those that
// find its miss buffers taken; a dropped line then costs the whole latency, and while it is waited
// for nothing else is asked for. So every line is asked for kTimes times: the first time far ahead,
// the last time near enough that what a step reads out of order is not yet over. Twice is best
// where vectors are 32 bytes, since prefetches then compete with more instructions. It is asked for
// in the order of memory, which the processor's own prefetchers and the memory are made for, and
// not farther ahead than L1 holds beside the kernel's rows (docs/notes/2026-11-30-cpu-decode.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/address_list-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kPieceBytes = 256;

// How many pieces ahead a line is asked for, each of kTimes times.
template <int kTimes>
constexpr int kDistances[kTimes] = {32, 60};
template <>
constexpr int kDistances<4>[4] = {28, 44, 60, 76};

// Where in a PieceList a kernel reads. It is copied into what loops, to live in registers.
class LookAhead {
 public:
  static constexpr int kTimes = kWidth == 16 ? 4 : 2;
  static constexpr int kFarthest = kDistances<kTimes>[kTimes - 1];

  LookAhead() = default;
  // Pieces from `at` on are read; kFarthest may follow `last`.
  LookAhead(const std::byte* const* at, const std::byte* const* last) : at_(at), last_(last) {}

  void go_on_from(const LookAhead& other) {
    at_ = other.at_;
    due_ = other.due_;
  }

  // kBytes more are being read, and as much further on is to be asked for: whole pieces in kShares
  // equal shares among the products, share<0>() to share<kShares - 1>(), less in one go.
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
    static constexpr int kLine = 64;
    static constexpr bool kWhole = kBytes % kPieceBytes == 0;
    static constexpr int kPieces = kWhole ? kBytes / kPieceBytes : 1;

    RAPT_ALWAYS_INLINE static void take(LookAhead& ahead, const std::byte* (&piece)[kTimes]) {
      unroll<kTimes>([&](auto k) { piece[k] = ahead.at_[kDistances<kTimes>[k] - 1]; });
      ahead.at_ += ahead.at_ < ahead.last_;  // rows of odd sizes are counted generously
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
  // Apart, lest both be loaded as one vector: that would wait for the store of at_ alone.
  const std::byte* const* at_ = nullptr;
  int64_t due_ = 0;  // bytes of the piece that have been read
  const std::byte* const* last_ = nullptr;
};

// The pieces of kPieceBytes of a block of keys in the order of memory, then the first of the next.
class PieceList : public AddressList<LookAhead::kFarthest> {
 public:
  using Ahead = LookAhead;
  static constexpr int64_t pieces_of(int64_t bytes) {
    return (bytes + kPieceBytes - 1) / kPieceBytes;
  }
  static constexpr int kGrain = 8;  // pieces are written so many at a time
  // Room for the pieces that aren't the block's own.
  static constexpr int kPadding = LookAhead::kFarthest + kGrain;

  // `storage` has room for a block's pieces and kPadding.
  explicit PieceList(std::byte* storage) : AddressList(storage) {}

  void add(const std::byte* run, int64_t bytes) {
    const int64_t pieces = smaller<int64_t>(pieces_of(bytes), limit_ - end_);
    for (int64_t i = 0; i < pieces; i += kGrain)
      for (int j = 0; j < kGrain; j++) end_[i + j] = run + (i + j) * kPieceBytes;
    end_ += pieces;
  }

  // Pieces are counted alike, whatever a run's bytes are.
  LookAhead from(int64_t piece, int64_t /*run_bytes*/) const { return {first_ + piece, last_}; }
};

// For rows that read again what others have read.
struct NoLookAhead {
  void go_on_from(NoLookAhead) {}
  template <int kBytes>
  struct Ask {
    explicit Ask(NoLookAhead&) {}
    template <int kShare, int kShares>
    void share() const {}
  };
};

}  // namespace
}  // namespace rapt::cpu
