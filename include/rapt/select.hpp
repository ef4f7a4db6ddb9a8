// Which backend runs a spec on a device, and why not the others.
//
// Pure functions over tables: no device needs to be present. Every check of every backend is made
// and every reason collected; a backend asked for by name that does not accept is an error, never a
// fallback.
#pragma once

#include <cstdint>
#include <optional>
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

struct SelectOptions {
  std::string backend{};  // "" or "auto" = by priority; otherwise that one or an error
  std::optional<int32_t> flash_attention_version{};  // 2, 3 or 4
  std::optional<KvLayout> layout{};                  // the caller's cache layout, if it is fixed
  int32_t manager_page_size = 0;      // the caller's allocation unit; 0 = spec.page_size
  int32_t context_parallel_size = 1;  // ranks the KV cache is sharded over
};

// One backend's answer.
struct BackendVerdict {
  BackendId backend{};
  int32_t version = 0;  // FlashAttention generation, 0 for the others
  bool accepted = false;
  std::vector<std::string> reasons;  // why not, all of them; empty when accepted
  std::vector<std::string> notes;    // how the version, layout or page size came about
};

struct Selection {
  BackendId backend{};
  int32_t version = 0;
  KvLayout layout = KvLayout::kNHD;
  int32_t page_size = 0;  // kernel page size; manager pages are a multiple of it
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

// The verdicts alone, in priority order; never throws for a well-formed spec.
RAPT_API std::vector<BackendVerdict> explain(const AttentionSpec& spec, const DeviceInfo& device,
                                             const SelectOptions& options = {});

}  // namespace rapt
