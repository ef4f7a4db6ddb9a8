// What one set of kernels can do, as a row of data. A backend has one row or several:
// FlashAttention one for each generation, FlashInfer one for each kernel family.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>

#include "rapt/select.hpp"

namespace rapt {

// A set of enumerators with values below 32.
template <typename Enum>
class EnumSet {
 public:
  constexpr EnumSet(std::initializer_list<Enum> members = {}) {
    for (Enum member : members) bits_ |= bit(member);
  }
  constexpr bool contains(Enum member) const { return bits_ & bit(member); }
  constexpr bool empty() const { return bits_ == 0; }
  // visit(member), in the order of their values.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (int value = 0; value < 32; value++)
      if (bits_ >> value & 1) visit(static_cast<Enum>(value));
  }

 private:
  static constexpr uint32_t bit(Enum member) { return uint32_t{1} << static_cast<int>(member); }
  uint32_t bits_ = 0;
};

constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

struct IntRange {
  int32_t min = 1;
  int32_t max = kUnbounded;
  constexpr bool contains(int32_t value) const { return min <= value && value <= max; }
};

// Pairs with head_dim_qk != head_dim_vo.
struct HeadDimPair {
  IntRange qk{}, vo{};
};

struct HeadDims {
  int32_t multiple_of = 1;  // of both
  bool power_of_two = false;
  IntRange equal{};                        // head_dim_qk == head_dim_vo
  std::span<const int32_t> listed{};       // if any: the only equal ones
  std::span<const HeadDimPair> unequal{};  // none: the two must be equal
};

// Windows that kernels apply. Where a query is causal its right side is bounded anyway, and only
// the left side counts; the comments say what may be asked of others.
enum class WindowSupport : uint8_t {
  kNone,
  kLeft,       // no bound on the right
  kSymmetric,  // left == right
  kBothSides,  // any bounds >= 0
  kAny,        // and, causal or not, literal negative ones
};

enum class ContextParallel : uint8_t { kNo, kCausal, kAny };

struct Capability {
  BackendId backend{};
  int32_t version = 0;  // FlashAttention generation
  const char* name = "";
  const char* source = "";  // where the facts come from
  bool built = false;       // its kernels are in this library

  DeviceKind device = DeviceKind::kCuda;
  IntRange compute_capability{0, kUnbounded};
  IntRange group{};  // query heads per KV head

  HeadDims head_dims{};
  EnumSet<DType> dtypes{};
  // Cache formats: the query dtype's own, and quantised ones.
  bool unquantised_kv = true;
  EnumSet<KvFormat> quantised_kv{};
  EnumSet<KvScales> kv_scales{KvScales::kNone};
  bool scales_unquantised_kv = false;  // kv_scales act on an unquantised cache too
  PageSizes page_sizes{};
  bool ragged = false;  // K and V without a cache
  std::optional<KvLayout> required_layout{};
  IntRange layout_required_on{0, kUnbounded};  // compute capabilities

  EnumSet<AttentionKind> kinds{AttentionKind::kDecoder};
  bool non_causal_decoder = false;
  WindowSupport window = WindowSupport::kNone;
  bool softcap = false;
  bool alibi = false;
  bool sinks = false;
  bool custom_mask = false;
  bool lse = false;
  bool batch_invariant = false;
  ContextParallel context_parallel = ContextParallel::kNo;
  // Steps of one query token per request only: never chosen unless named.
  bool decode_only = false;
  GraphSupport graph = GraphSupport::kNever;
};

// Every row; those of one backend are neighbours, in the order in which they are tried.
std::span<const Capability> capabilities();

}  // namespace rapt
