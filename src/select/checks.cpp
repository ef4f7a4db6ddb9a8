#include "select/checks.hpp"

#include <algorithm>
#include <bit>

#include "core/check.hpp"
#include "select/names.hpp"
#include "select/page_size.hpp"

namespace rapt {
namespace {

constexpr int32_t kFirstSmWithBFloat16 = 80;

class Reasons {
 public:
  // "name is value: bound"
  template <typename Value, typename... Bound>
  void add(const char* name, const Value& value, const Bound&... bound) {
    texts_.push_back(concat(name, " is ", value, ": ", bound...));
  }
  // An option that is asked for and missing.
  void add_unless(bool supported, bool wanted, const char* name, const Capability& row) {
    if (wanted && !supported) add(name, "on", "must be off with ", row.name);
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::vector<std::string> texts_;
};

std::string describe(const Window& window) {
  return concat("(", window.left, ", ", window.right, ")");
}

void check_equal_head_dims(const HeadDims& dims, int32_t head_dim, Reasons& reasons) {
  if (!dims.listed.empty()) {
    if (std::find(dims.listed.begin(), dims.listed.end(), head_dim) == dims.listed.end())
      reasons.add("head_dim_qk", head_dim, "must be ", list_of(dims.listed));
    return;
  }
  if (!dims.equal.contains(head_dim))
    reasons.add("head_dim_qk", head_dim, "must be ", to_string(dims.equal));
  if (dims.power_of_two && !std::has_single_bit(static_cast<uint32_t>(head_dim)))
    reasons.add("head_dim_qk", head_dim, "must be a power of two");
}

void check_head_dims(const HeadDims& dims, int32_t qk, int32_t vo, Reasons& reasons) {
  if (qk % dims.multiple_of != 0)
    reasons.add("head_dim_qk", qk, "must be a multiple of ", dims.multiple_of);
  if (vo != qk && vo % dims.multiple_of != 0)
    reasons.add("head_dim_vo", vo, "must be a multiple of ", dims.multiple_of);
  if (vo == qk) return check_equal_head_dims(dims, qk, reasons);
  for (const HeadDimPair& pair : dims.unequal)
    if (pair.qk.contains(qk) && pair.vo.contains(vo)) return;
  std::string pairs;
  for (const HeadDimPair& pair : dims.unequal)
    pairs += concat(", or the two within (", to_string(pair.qk), ", ", to_string(pair.vo), ")");
  reasons.add("head_dim_vo", vo, "must equal head_dim_qk ", qk, pairs);
}

void check_head_dims(const Capability& row, const Request& request, Reasons& reasons) {
  check_head_dims(row.head_dims, request.spec.head_dim_qk, request.spec.dim_vo(), reasons);
}

void check_dtype(const Capability& row, const Request& request, Reasons& reasons) {
  const DType dtype = request.spec.dtype;
  if (!row.dtypes.contains(dtype))
    reasons.add("dtype", to_string(dtype), "must be ", list_of(row.dtypes));
  if (dtype == DType::kBFloat16 && row.device == DeviceKind::kCuda && request.on_cuda() &&
      request.device.compute_capability < kFirstSmWithBFloat16)
    reasons.add("dtype", to_string(dtype), "SM ",
                compute_capability_name(request.device.compute_capability),
                " has no bfloat16 arithmetic, which begins with SM ",
                compute_capability_name(kFirstSmWithBFloat16));
}

void check_kv_format(const Capability& row, const Request& request, Reasons& reasons) {
  const KvFormat format = request.spec.cache_format();
  const std::optional<DType> element = element_dtype(format);
  if (element ? row.unquantised_kv && *element == request.spec.dtype
              : row.quantised_kv.contains(format))
    return;
  std::string bound = row.unquantised_kv
                          ? concat(to_string(request.spec.dtype), " (the query dtype's)")
                          : std::string();
  if (!row.quantised_kv.empty()) bound += (bound.empty() ? "" : " or ") + list_of(row.quantised_kv);
  reasons.add("kv_format", to_string(format), "must be ", bound);
}

void check_page_size(const Capability& row, const Request& request, Reasons& reasons) {
  const int32_t page_size = request.spec.page_size;
  if (page_size == 0) {
    if (!row.ragged)
      reasons.add("page_size", 0, "needs a paged cache, pages of ", to_string(row.page_sizes));
  } else if (!find_common_page_size({&row.page_sizes, 1}, page_size)) {
    reasons.add("page_size", page_size, "must be ", to_string(row.page_sizes),
                row.page_sizes.listed.empty() ? "" : ", or a multiple of one of them");
  }
}

void check_custom_mask(const Capability& row, const Request& request, Reasons& reasons) {
  reasons.add_unless(row.custom_mask, request.spec.custom_mask, "custom_mask", row);
}

void check_sinks(const Capability& row, const Request& request, Reasons& reasons) {
  reasons.add_unless(row.sinks, request.spec.sinks, "sinks", row);
}

// A scale that a kernel would not apply is refused, so that an accepted one always changes the
// result.
void check_kv_scales(const Capability& row, const Request& request, Reasons& reasons) {
  const AttentionSpec& spec = request.spec;
  if (spec.kv_scales == KvScales::kNone) return;
  const KvFormat format = spec.cache_format();
  const bool per_token_head = format == KvFormat::kInt8PerTokenHead ||
                              format == KvFormat::kFp8PerTokenHead ||
                              format == KvFormat::kInt4PerTokenHead;
  if (!row.kv_scales.contains(spec.kv_scales))
    reasons.add("kv_scales", to_string(spec.kv_scales), "must be ", list_of(row.kv_scales));
  else if ((spec.kv_scales == KvScales::kPerTokenHead) != per_token_head)
    reasons.add("kv_scales", to_string(spec.kv_scales), "does not go with kv_format ",
                to_string(format), per_token_head ? ", whose scales are per_token_head" : "");
  else if (!row.scales_unquantised_kv && element_dtype(format))
    reasons.add("kv_scales", to_string(spec.kv_scales), "must be none with an unquantised cache (",
                to_string(format), ")");
}

void check_device(const Capability& row, const Request& request, Reasons& reasons) {
  const DeviceInfo& device = request.device;
  if (row.device != device.kind)
    reasons.add("device", device.name, "must be a ",
                row.device == DeviceKind::kCpu ? "CPU" : "CUDA device");
  else if (request.on_cuda() && !row.compute_capability.contains(device.compute_capability))
    reasons.add("compute_capability", compute_capability_name(device.compute_capability),
                "must be ", compute_capability_name(row.compute_capability.min),
                row.compute_capability.max == kUnbounded
                    ? " or more"
                    : "-" + compute_capability_name(row.compute_capability.max));
}

void check_group(const Capability& row, const Request& request, Reasons& reasons) {
  if (!row.group.contains(request.spec.group()))
    reasons.add("group", request.spec.group(), "must be ", to_string(row.group));
}

void check_kind(const Capability& row, const Request& request, Reasons& reasons) {
  if (!row.kinds.contains(request.spec.kind))
    reasons.add("kind", to_string(request.spec.kind), "must be ", list_of(row.kinds));
}

void check_non_causal(const Capability& row, const Request& request, Reasons& reasons) {
  if (request.spec.kind == AttentionKind::kDecoder && !request.spec.is_causal() &&
      !row.non_causal_decoder)
    reasons.add("causal", "off", "must be on for kind decoder");
}

void check_batch_invariant(const Capability& row, const Request& request, Reasons& reasons) {
  reasons.add_unless(row.batch_invariant, request.spec.batch_invariant, "batch_invariant", row);
}

void check_window(const Capability& row, const Request& request, Reasons& reasons) {
  const Window& window = request.spec.window;
  if (window == Window{} || row.window == WindowSupport::kAny) return;
  if (row.window == WindowSupport::kNone)
    return reasons.add("window", describe(window), "must be (-1, -1), no window, with ", row.name);
  if (window.left < -1 || window.right < -1)
    return reasons.add("window", describe(window), "both sides must be -1 (no limit) or more");
  // A causal query sees nothing to its right anyway.
  if (row.window == WindowSupport::kBothSides || request.spec.is_causal()) return;
  if (row.window == WindowSupport::kLeft && window.right != -1)
    reasons.add("window", describe(window), "its right side must be -1 where causal is off");
  if (row.window == WindowSupport::kSymmetric && window.left != window.right)
    reasons.add("window", describe(window), "its sides must be equal where causal is off");
}

void check_softcap(const Capability& row, const Request& request, Reasons& reasons) {
  if (request.spec.softcap != 0 && !row.softcap)
    reasons.add("softcap", request.spec.softcap, "must be 0, off, with ", row.name);
}

void check_alibi(const Capability& row, const Request& request, Reasons& reasons) {
  reasons.add_unless(row.alibi, request.spec.alibi, "alibi", row);
}

void check_lse(const Capability& row, const Request& request, Reasons& reasons) {
  reasons.add_unless(row.lse, request.spec.needs_lse, "needs_lse", row);
}

void check_layout(const Capability& row, const Request& request, Reasons& reasons) {
  if (request.on_cuda() && row.required_layout && request.options.layout &&
      *request.options.layout != *row.required_layout &&
      row.layout_required_on.contains(request.device.compute_capability))
    reasons.add("layout", to_string(*request.options.layout), "must be ",
                to_string(*row.required_layout), " on SM ",
                compute_capability_name(request.device.compute_capability));
}

// Ranks hold interleaved runs of a request's keys, and attend to them by local position before the
// partial results are merged. What depends on distances or on being counted once is lost there.
void check_context_parallel(const Capability& row, const Request& request, Reasons& reasons) {
  const AttentionSpec& spec = request.spec;
  const int32_t ranks = request.options.context_parallel_size;
  if (ranks == 1) return;
  const auto add = [&](const auto&... bound) {
    reasons.add("context_parallel_size", ranks, "must be 1 ", bound...);
  };
  if (row.context_parallel == ContextParallel::kNo) add("with ", row.name);
  if (row.context_parallel == ContextParallel::kCausal && !spec.is_causal())
    add("where causal is off");
  if (spec.kind != AttentionKind::kDecoder) add("for kind ", to_string(spec.kind));
  if (!spec.is_paged()) add("where page_size is 0, for there is no cache to share");
  if (spec.window != Window{}) add("with window ", describe(spec.window));
  if (spec.sinks) add("with sinks");
  if (spec.alibi) add("with alibi");
  if (spec.custom_mask) add("with custom_mask");
}

void check_flash_attention_version(const Capability& row, const Request& request,
                                   Reasons& reasons) {
  const std::optional<int32_t> wanted = request.options.flash_attention_version;
  if (row.backend == BackendId::kFlashAttention && wanted && *wanted != row.version)
    reasons.add("flash_attention_version", *wanted, "this problem needs ", row.version,
                " (the notes say why); ask for that one or leave it to the selector");
}

void check_decode_only(const Capability& row, const Request& request, Reasons& reasons) {
  if (row.decode_only && !request.by_name())
    reasons.add("backend", "auto", to_string(row.backend),
                " runs steps of one query token per request only; ask for it by name");
}

using Check = void (*)(const Capability&, const Request&, Reasons&);

constexpr Check kChecks[] = {
    check_head_dims,
    check_dtype,
    check_kv_format,
    check_page_size,
    check_custom_mask,
    check_sinks,
    check_kv_scales,
    check_device,
    check_group,
    check_kind,
    check_non_causal,
    check_batch_invariant,
    check_window,
    check_softcap,
    check_alibi,
    check_lse,
    check_layout,
    check_context_parallel,
    check_flash_attention_version,
    check_decode_only,
};

}  // namespace

std::vector<std::string> reasons_against(const Capability& row, const Request& request) {
  Reasons reasons;
  for (Check check : kChecks) check(row, request, reasons);
  return reasons.take();
}

bool runs_on(const Capability& row, const DeviceInfo& device) {
  return row.device == device.kind && (device.kind == DeviceKind::kCpu ||
                                       row.compute_capability.contains(device.compute_capability));
}

bool takes_head_dims(const Capability& row, const AttentionSpec& spec) {
  Reasons reasons;
  check_head_dims(row.head_dims, spec.head_dim_qk, spec.dim_vo(), reasons);
  return reasons.take().empty();
}

}  // namespace rapt
