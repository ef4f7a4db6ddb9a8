#include "backends/flash_attention/kernel_texts.hpp"

#include <utility>

#include "backends/flash_attention/kernel_choice.hpp"
#include "kernels/abi/merge.hpp"
#include "kernels/abi/write_kv.hpp"

namespace rapt::flash_attention {
namespace {

// The variant, of the key's values.
constexpr const char* kVariant =
    "AttentionVariant{key::head_dim_qk, key::head_dim_vo, key::group, key::page_size, "
    "key::tile_rows, key::tile_keys, key::stages, key::num_warps, "
    "key::scores_in_advance, key::softcap, key::alibi, key::custom_mask, key::sinks}";

}  // namespace

KernelText attention_text(const device::AttentionVariant& variant, DType dtype,
                          jit::Architecture architecture) {
  using device::AttentionParams;
  jit::KernelKey key("attention_sm80", architecture);
  key.number("head_dim_qk", variant.head_dim_qk)
      .number("head_dim_vo", variant.head_dim_vo)
      .number("group", variant.group)
      .number("page_size", variant.page_size)
      .number("tile_rows", variant.tile_rows)
      .number("tile_keys", variant.tile_keys)
      .number("stages", variant.stages)
      .number("num_warps", variant.num_warps)
      .flag("scores_in_advance", variant.scores_in_advance)
      .flag("softcap", variant.softcap)
      .flag("alibi", variant.alibi)
      .flag("custom_mask", variant.custom_mask)
      .flag("sinks", variant.sinks)
      .type("element", element_of(dtype));
  return {
      std::move(key),
      {.header = "prefill/attention_sm80.cuh",
       .function = "rapt_attention",
       // At least one block an SM: ptxas would spill for three.
       .entry = concat("extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * key::num_warps, 1) "
                       "rapt_attention(GRID_CONSTANT const AttentionParams params) {\n"
                       "  AttentionBlock<",
                       kVariant, ", key::element>(params).run();\n}"),
       .agreements = {same_size<AttentionParams>("AttentionParams"),
                      same_size<device::AttentionWork>("AttentionWork"),
                      {concat("sizeof(AttentionShared<", kVariant, ">)"), variant.shared_bytes()}}},
      variant.shared_bytes()};
}

KernelText merge_rows_text(DType dtype, jit::Architecture architecture) {
  return {jit::KernelKey("merge_rows", architecture).type("element", element_of(dtype)),
          {.header = "merge/merge.cuh",
           .function = "rapt_merge_rows",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * kMergeWarps) "
                    "rapt_merge_rows(GRID_CONSTANT const MergeParams params) {\n"
                    "  merge_rows<key::element>(params);\n}",
           .agreements = {same_size<device::MergeParams>("MergeParams"),
                          same_size<device::MergeWork>("MergeWork"),
                          {"kMergeWarps", device::kMergeWarps}}}};
}

KernelText write_kv_text(jit::Architecture architecture) {
  return {jit::KernelKey("write_kv", architecture),
          {.header = "cache/write_kv.cuh",
           .function = "rapt_write_kv",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(kWriteKvThreads) "
                    "rapt_write_kv(GRID_CONSTANT const WriteKvParams params) {\n"
                    "  write_kv(params);\n}",
           .agreements = {same_size<device::WriteKvParams>("WriteKvParams"),
                          {"kWriteKvThreads", device::kWriteKvThreads}}}};
}

KernelText rope_write_kv_text(DType dtype, jit::Architecture architecture) {
  return {jit::KernelKey("rope_write_kv", architecture).type("element", element_of(dtype)),
          {.header = "cache/rope_write_kv.cuh",
           .function = "rapt_rope_write_kv",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(kWriteKvThreads) "
                    "rapt_rope_write_kv(GRID_CONSTANT const RopeWriteKvParams params) {\n"
                    "  rope_write_kv<key::element>(params);\n}",
           .agreements = {same_size<device::RopeWriteKvParams>("RopeWriteKvParams"),
                          same_size<device::WriteKvParams>("WriteKvParams"),
                          {"kWriteKvThreads", device::kWriteKvThreads}}}};
}

std::vector<KernelText> texts_for(const AttentionSpec& spec, const DeviceInfo& device) {
  const jit::Architecture architecture = architecture_for(device.compute_capability);
  std::vector<KernelText> texts;
  for (const KernelChoice& choice : choose_kernels(spec, device))
    texts.push_back(attention_text(choice.variant, spec.dtype, architecture));
  texts.push_back(merge_rows_text(spec.dtype, architecture));
  if (spec.is_paged()) {
    texts.push_back(write_kv_text(architecture));
    texts.push_back(rope_write_kv_text(spec.dtype, architecture));
  }
  return texts;
}

}  // namespace rapt::flash_attention
