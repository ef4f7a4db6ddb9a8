#include "select/flash_attention_version.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "select/capability.hpp"
#include "select/names.hpp"

namespace rapt {
namespace {

// FlashAttention 4 keeps scores and outputs in the tensor memory of SM 10.x and later. Head dims up
// to 128 fit, and (192, 128); 256 has a kernel of its own with fewer options and larger pages.
bool fits_tensor_memory(const Request& request) {
  const AttentionSpec& spec = request.spec;
  const int32_t qk = spec.head_dim_qk, vo = spec.dim_vo();
  if (std::max(qk, vo) <= 128 || (qk == 192 && vo == 128)) return true;
  return qk == 256 && vo == 256 && spec.is_paged() && spec.page_size % 128 == 0 && !spec.sinks &&
         spec.softcap == 0 && !spec.custom_mask && request.options.context_parallel_size == 1 &&
         element_dtype(spec.cache_format()).has_value();
}

}  // namespace

bool has_flash_attention(int32_t version, int32_t compute_capability) {
  const auto rows = capabilities();
  return std::any_of(rows.begin(), rows.end(), [&](const Capability& row) {
    return row.backend == BackendId::kFlashAttention && row.version == version &&
           row.compute_capability.contains(compute_capability);
  });
}

FlashAttentionVersion flash_attention_version(const Request& request) {
  const AttentionSpec& spec = request.spec;
  const int32_t sm = request.device.compute_capability, major = sm / 10;
  const auto available = [sm](int32_t version) { return has_flash_attention(version, sm); };
  FlashAttentionVersion choice;
  const auto set = [&choice](int32_t version, const auto&... why) {
    choice.version = version;
    choice.trail.push_back(concat("version ", version, ": ", why...));
  };

  if (major == 9 && available(3))
    set(3, "the default on SM ", compute_capability_name(sm));
  else if (major == 10 && available(4))
    set(4, "the default on SM ", compute_capability_name(sm));
  else
    set(2, "the default on SM ", compute_capability_name(sm));

  if (request.options.flash_attention_version)
    set(*request.options.flash_attention_version, "asked for");
  if (choice.version == 3 && sm >= 100)
    set(available(4) ? 4 : 2, "3 has no kernels for SM ", compute_capability_name(sm));
  if (choice.version >= 3 && spec.alibi) set(2, "ALiBi needs 2");
  if (choice.version == 3 && available(4)) {
    if (spec.head_dim_qk > 256)
      set(4, "head_dim_qk ", spec.head_dim_qk, " is over 256, the most of 3");
    else if (spec.sinks && spec.head_dim_qk != spec.dim_vo())
      set(4, "sinks with head_dim_vo ", spec.dim_vo(), " unequal to head_dim_qk need 4");
  }
  if (choice.version == 4 && spec.batch_invariant) set(2, "4 is not batch invariant");
  if (choice.version == 4 && sm >= 100 && !fits_tensor_memory(request))
    set(2, "head dims (", spec.head_dim_qk, ", ", spec.dim_vo(),
        ") with these options do not fit the tensor memory that 4 uses on SM ",
        compute_capability_name(sm));
  return choice;
}

}  // namespace rapt
