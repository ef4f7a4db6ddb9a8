// Random problems on every device: whatever is chosen can run (public report J04: "auto" on Hopper
// took kernels that cannot read the cache).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "select/checks.hpp"
#include "support.hpp"

namespace rapt {
namespace {

struct Problem {
  AttentionSpec spec;
  DeviceInfo device;
  SelectOptions options;
};

template <typename T>
T pick(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

// Well-formed, and mostly plain: an option is on about one time in ten, so that backends accept
// many.
Problem random_problem() {
  const auto sometimes = [] { return pick({1, 0, 0, 0, 0, 0, 0, 0, 0, 0}) == 1; };
  Problem p;
  AttentionSpec& spec = p.spec;
  spec.num_kv_heads = pick({1, 3, 8});
  spec.num_query_heads = spec.num_kv_heads * pick({1, 2, 4, 5, 7, 71});
  spec.head_dim_qk = pick({16, 32, 40, 64, 72, 80, 96, 128, 128, 192, 200, 256, 264, 512, 520});
  spec.head_dim_vo = sometimes() ? pick({64, 128, 192, 512}) : 0;
  spec.dtype = pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kBFloat16});
  if (pick({true, false, false}))
    spec.kv_format = pick({KvFormat::kFloat16, KvFormat::kFp8E4M3, KvFormat::kFp8E5M2,
                           KvFormat::kNvfp4, KvFormat::kInt8PerTokenHead, KvFormat::kTurboQuantK8V4,
                           KvFormat::kTurboQuant4BitNc, KvFormat::kTurboQuant3BitNc});
  spec.page_size = pick({1, 8, 16, 16, 48, 64, 128, 256, 544, 1024});
  spec.kind =
      pick({AttentionKind::kDecoder, AttentionKind::kDecoder, AttentionKind::kDecoder,
            AttentionKind::kEncoder, AttentionKind::kEncoderOnly, AttentionKind::kEncoderDecoder});
  if (spec.kind == AttentionKind::kEncoder || spec.kind == AttentionKind::kEncoderOnly ||
      sometimes())
    spec.page_size = 0;
  if (spec.kind == AttentionKind::kDecoder && sometimes()) spec.causal = false;
  if (sometimes()) spec.window = pick({Window{127, 0}, Window{5, 5}, Window{7, -8}});
  spec.softcap = sometimes() ? 30.0f : 0.0f;
  spec.alibi = sometimes();
  spec.sinks = sometimes();
  spec.custom_mask = sometimes();
  if (sometimes())
    spec.kv_scales = pick({KvScales::kPerTensor, KvScales::kPerHead, KvScales::kPerTokenHead});
  spec.needs_lse = sometimes();
  spec.batch_invariant = sometimes();
  if (spec.page_size == 0) {  // anything else is malformed
    spec.kv_format = KvFormat::kAuto;
    if (spec.kv_scales == KvScales::kPerTokenHead) spec.kv_scales = KvScales::kNone;
  }
  p.device = device_info(pick<std::string>({"cpu-avx2", "sm75", "sm80", "sm86", "sm89", "sm90",
                                            "sm90", "sm100", "sm100", "sm103", "sm120", "sm121"}));
  p.options.context_parallel_size = sometimes() ? 4 : 1;
  if (sometimes()) p.options.layout = pick({KvLayout::kNHD, KvLayout::kHND});
  if (sometimes()) p.options.flash_attention_version = pick({2, 3, 4});
  return p;
}

// What the kernels are known to do, written down apart from the tables; empty = it runs.
std::string impossible_for(const Selection& selection, const Problem& p) {
  const AttentionSpec& s = p.spec;
  const int32_t sm = p.device.compute_capability, d = s.head_dim_qk, dv = s.dim_vo();
  const bool fp8 = s.cache_format() == KvFormat::kFp8E4M3;
  const bool quantised = !element_dtype(s.cache_format());
  const bool gpu = p.device.kind == DeviceKind::kCuda;
  if (!quantised && element_dtype(s.cache_format()) != s.dtype) return "mixed dtypes";
  if (gpu && sm < 80 && s.dtype == DType::kBFloat16) return "bfloat16 before SM 8.0";
  if (gpu && (s.window.left < -1 || s.window.right < -1)) return "literal negative window on a GPU";
  if (p.options.context_parallel_size > 1 && (s.window != Window{} || s.sinks || s.alibi))
    return "shards with positions";
  switch (selection.backend) {
    case BackendId::kFlashAttention: {
      const int32_t v = selection.version;
      if (!gpu || sm < 80 || s.dtype == DType::kFloat32) return "basics";
      if (v != 2 && s.page_size % 16) return "pages";
      if (d % 8 || d > (v == 4 && sm < 100 ? 512 : 256)) return "head dim";
      if (v == 3 && sm / 10 != 9) return "3 off Hopper";
      if (v == 4 && (sm < 90 || sm >= 120)) return "4 off Hopper and Blackwell";
      if (v == 4 && sm >= 100 && d > 128 && d != 256 && !(d == 192 && dv == 128)) return "TMEM";
      if (v == 4 && sm >= 100 && d == 256 && (s.page_size % 128 || s.sinks || s.softcap != 0))
        return "256 on Blackwell";
      if (v == 2 && (dv % 8 || dv > 256)) return "2: value heads";
      if (v == 2 && p.options.context_parallel_size > 1) return "2: shards";
      if (v != 2 && s.alibi) return "ALiBi past 2";
      if (v == 4 && s.batch_invariant) return "4: batch invariance";
      if (quantised && !(v == 3 && fp8)) return "quantised cache";
      if (s.kv_scales != KvScales::kNone && !(v == 3 && fp8)) return "scales that are ignored";
      if (p.options.flash_attention_version.value_or(v) != v) return "another version asked for";
      return v != 2 && s.custom_mask ? "custom mask" : "";
    }
    case BackendId::kFlashInfer: {
      if (!gpu || sm < 80 || s.dtype == DType::kFloat32) return "basics";
      if (s.alibi) return "ALiBi";
      if (s.kind != AttentionKind::kDecoder || d != dv) return "kind or unequal heads";
      if (d != 64 && d != 128 && d != 256 && d != 512) return "head dim";
      if (s.sinks && (sm / 10 != 10 || s.batch_invariant || s.needs_lse)) return "sinks";
      if (s.cache_format() == KvFormat::kNvfp4 && sm / 10 != 10) return "nvfp4";
      if (sm / 10 == 10 && selection.layout != KvLayout::kHND) return "layout";
      return s.kv_scales == KvScales::kPerHead ? "per-head scales" : "";
    }
    case BackendId::kPortable:
      if (s.custom_mask || s.needs_lse || p.options.context_parallel_size > 1) return "options";
      return !gpu || d < 32 || d != dv || s.page_size % 16 ? "shape" : "";
    case BackendId::kFlex:
      if (s.softcap != 0 || s.alibi || s.sinks || quantised || s.needs_lse) return "options";
      return !gpu || s.page_size % 16 ? "shape" : "";
    case BackendId::kTurboQuant:
      if (s.sinks || s.alibi || s.softcap != 0 || s.window != Window{}) return "options";
      return s.cache_format() < KvFormat::kTurboQuantK8V4 || (d & (d - 1)) ? "format" : "";
    case BackendId::kPagedAttention:
      return "prefill";
    case BackendId::kCpu:
    case BackendId::kReference:
      if (gpu || quantised || p.options.context_parallel_size > 1) return "basics";
      return selection.backend == BackendId::kCpu && (d % 8 || dv % 8 || std::max(d, dv) > 512)
                 ? "head dim"
                 : "";
  }
  return "unknown backend";
}

// Enough problems in each of RapidCheck's hundred cases to meet rare combinations.
constexpr int kProblems = 50;

using Tally = std::map<BackendId, int>;

void expect_runnable(const Problem& p, Tally& chosen) {
  for (IsBuilt is_built : {IsBuilt{all_built}, IsBuilt{built_here}}) {
    Selection selection;
    try {
      selection = select({p.spec, p.device, p.options}, is_built);
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kUnsupported);
      continue;
    }
    chosen[selection.backend]++;
    RC_ASSERT(impossible_for(selection, p) == "");
    RC_ASSERT(p.spec.page_size == 0 || (selection.page_sizes.contains(selection.page_size) &&
                                        p.spec.page_size % selection.page_size == 0));
    RC_ASSERT(!p.options.layout || *p.options.layout == selection.layout);
  }
}

TEST(Properties, what_is_chosen_can_run) {
  Tally chosen;
  EXPECT_TRUE(rc::check([&] {
    for (int i = 0; i < kProblems; i++) expect_runnable(random_problem(), chosen);
  }));
  // It says little about a backend that is never chosen.
  for (BackendId backend : kAllBackends) {
    if (backend == BackendId::kPagedAttention) continue;
    EXPECT_GT(chosen[backend], 0) << to_string(backend);
  }
}

void expect_first_of_its_checks(const Problem& p) {
  const Request request{p.spec, p.device, p.options};
  const Judgement* first = nullptr;
  const std::vector<Judgement> judgements = judge(request, all_built);
  for (const Judgement& judgement : judgements) {
    RC_ASSERT(judgement.verdict.accepted == judgement.verdict.reasons.empty());
    RC_ASSERT(judgement.verdict.accepted == reasons_against(*judgement.row, request).empty());
    if (judgement.verdict.accepted && !first) first = &judgement;
  }
  if (!first) return;
  const Selection selection = select(request, all_built);
  RC_ASSERT(selection.backend == first->verdict.backend);
  SelectOptions named = p.options;
  named.backend = to_string(selection.backend);
  const Selection again = select({p.spec, p.device, named}, all_built);
  RC_ASSERT(again.version == selection.version);
  RC_ASSERT(again.layout == selection.layout);
}

RC_GTEST_PROP(Properties, what_is_chosen_passes_its_own_checks_and_is_the_first_to, ()) {
  for (int i = 0; i < kProblems; i++) expect_first_of_its_checks(random_problem());
}

// Kernels that are built later only take their "not built" away.
RC_GTEST_PROP(Properties, not_built_is_the_last_reason_and_changes_no_other, ()) {
  const Problem p = random_problem();
  const Request request{p.spec, p.device, p.options};
  const std::vector<Judgement> built = judge(request, all_built), here = judge(request, built_here);
  for (size_t i = 0; i < built.size(); i++) {
    std::vector<std::string> expected = built[i].verdict.reasons;
    if (!here[i].row->built) expected.push_back(here[i].verdict.reasons.back());
    RC_ASSERT(here[i].verdict.reasons == expected);
    RC_ASSERT(here[i].verdict.not_built == !here[i].row->built);
  }
}

// "argument is value: bound", perhaps after "kernels: ".
bool names_argument_value_and_bound(std::string_view reason) {
  for (std::string_view family : {"FlashInfer ", "FlashAttention "})
    if (reason.starts_with(family)) reason.remove_prefix(reason.find(": ") + 2);
  const size_t name = reason.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  if (name == 0 || name == std::string_view::npos) return false;
  const std::string_view rest = reason.substr(name);
  const size_t colon = rest.find(": ");
  return rest.starts_with(" is ") && colon != std::string_view::npos && colon > 4 &&
         colon + 2 < rest.size() && rest.find_first_of("%{}") == std::string_view::npos;
}

// Public report K18: a text that printed its format string, and not the page size it was about.
RC_GTEST_PROP(Properties, every_reason_names_argument_value_and_bound, ()) {
  const Problem p = random_problem();
  for (const BackendVerdict& verdict : explain(p.spec, p.device, p.options))
    for (const std::string& reason : verdict.reasons) {
      RC_LOG(reason);
      RC_ASSERT(reason.starts_with("not built: ") || names_argument_value_and_bound(reason));
    }
}

}  // namespace
}  // namespace rapt
