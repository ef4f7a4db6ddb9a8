// Which backend runs a spec on a device, and why not the others.
//
// Pure functions over tables: no device needs to be present. Every check of every backend is made
// and every reason collected; a backend asked for by name that does not accept is an error, never a
// fallback.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/device.hpp"
#include "rapt/export.hpp"
#include "rapt/kv_cache.hpp"
#include "rapt/spec.hpp"

namespace rapt {

enum class BackendId : uint8_t {
  kFlashAttention,
  kFlashInfer,
  kPortable,
  kFlex,
  kTurboQuant,
  kPagedAttention,
  kCpu,
  kReference,
};

// "flash_attention", "flashinfer", "portable", "flex", "turboquant", "paged_attention", "cpu",
// "reference".
RAPT_API const char* to_string(BackendId id);
RAPT_API std::optional<BackendId> parse_backend(std::string_view name);

// How much of a step a captured graph can hold. A model has the minimum over its layers.
enum class GraphSupport : uint8_t { kNever, kSingleTokenDecode, kUniformBatch, kAlways };
RAPT_API const char* to_string(GraphSupport support);

// Page sizes that kernels read: any multiple of a number, or the listed ones.
struct PageSizes {
  int32_t multiple_of = 0;            // 0 = the listed ones only
  std::span<const int32_t> listed{};  // ascending; of a selection: static memory
  RAPT_API bool contains(int32_t page_size) const;
};

struct SelectOptions {
  // "" or "auto" (in any case) = by priority; otherwise that one or an error.
  std::string backend{};
  // 2, 3 or 4, should FlashAttention be the backend; it refuses a problem that needs another one.
  std::optional<int32_t> flash_attention_version{};
  std::optional<KvLayout> layout{};  // the caller's cache layout, if it is fixed
  // The caller's allocation unit, a multiple of spec.page_size; 0 = the same.
  int32_t manager_page_size = 0;
  int32_t context_parallel_size = 1;  // ranks the KV cache is sharded over
};

// One backend's answer.
struct BackendVerdict {
  BackendId backend{};
  int32_t version = 0;  // FlashAttention generation, 0 for the others
  bool accepted = false;
  bool not_built = false;            // its kernels are not in this library: the last reason
  std::vector<std::string> reasons;  // why not, all of them; empty when accepted
  std::vector<std::string> notes;    // how the version, layout or page size came about

  // Only its missing kernels speak against it.
  bool fits_but_not_built() const { return not_built && reasons.size() == 1; }
};

struct Selection {
  BackendId backend{};
  int32_t version = 0;
  KvLayout layout = KvLayout::kNHD;
  // Kernel page size: spec.page_size where the kernels read such pages, otherwise the largest they
  // read that divides it (expand_pages() makes the table); 0 = no cache.
  int32_t page_size = 0;
  PageSizes page_sizes{};  // all that the chosen kernels read
  GraphSupport graph = GraphSupport::kNever;
  std::vector<BackendVerdict> verdicts;  // in priority order, the chosen one included

  // Several lines for people: the choice, then each rejected backend with all its reasons.
  RAPT_API std::string explain() const;
};

// Throws Error(kInvalidArgument) for a malformed spec or an unknown backend name (listing the valid
// ones), and Error(kUnsupported) with every backend's reasons if none accepts, or with the named
// one's reasons.
RAPT_API Selection select(const AttentionSpec& spec, const DeviceInfo& device,
                          const SelectOptions& options = {});

// The verdicts alone, in priority order; throws kInvalidArgument as select() does, never
// kUnsupported.
RAPT_API std::vector<BackendVerdict> explain(const AttentionSpec& spec, const DeviceInfo& device,
                                             const SelectOptions& options = {});

// Verdicts as several lines for people.
RAPT_API std::string describe(std::span<const BackendVerdict> verdicts);

// The one kernel page size for layers of several backends that share a page manager: the manager's
// own size where all read it, otherwise the largest listed size that divides it and that all read.
// Throws Error(kUnsupported) if there is none.
RAPT_API int32_t common_page_size(std::span<const PageSizes> layers, int32_t manager_page_size);

}  // namespace rapt
