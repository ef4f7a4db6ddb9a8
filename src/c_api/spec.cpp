#include "c_api/spec.hpp"

#include "c_api/params.hpp"
#include "c_api/tensor.hpp"

namespace rapt::c_api {

AttentionSpec spec_of(const rapt_attention_spec* spec) {
  const rapt_attention_spec given = read_params(spec, "spec");
  AttentionSpec result;
  result.num_query_heads = given.num_query_heads;
  result.num_kv_heads = given.num_kv_heads;
  result.head_dim_qk = given.head_dim_qk;
  result.head_dim_vo = given.head_dim_vo;
  result.dtype = dtype_of(given.dtype, "spec->dtype");
  result.kv_format = to_enum(given.kv_format, KvFormat::kTurboQuant3BitNc, "spec->kv_format");
  result.page_size = given.page_size;
  result.kind = to_enum(given.kind, AttentionKind::kEncoderDecoder, "spec->kind");
  check(given.causal >= RAPT_DEFAULT && given.causal <= RAPT_NO, "spec->causal is ", given.causal,
        ": must be RAPT_DEFAULT, RAPT_YES or RAPT_NO");
  if (given.causal != RAPT_DEFAULT) result.causal = given.causal == RAPT_YES;
  if (to_flag(given.has_window, "spec->has_window")) {
    result.window = {given.window_left, given.window_right};
  } else {
    check(given.window_left == 0 && given.window_right == 0, "spec->window is (", given.window_left,
          ", ", given.window_right, "), but has_window is 0: set it to 1, or leave both at 0");
  }
  if (given.scale != 0) result.scale = given.scale;
  result.softcap = given.softcap;
  result.alibi = to_flag(given.alibi, "spec->alibi");
  result.sinks = to_flag(given.sinks, "spec->sinks");
  result.custom_mask = to_flag(given.custom_mask, "spec->custom_mask");
  result.kv_scales = to_enum(given.kv_scales, KvScales::kPerTokenHead, "spec->kv_scales");
  result.needs_lse = to_flag(given.needs_lse, "spec->needs_lse");
  result.batch_invariant = to_flag(given.batch_invariant, "spec->batch_invariant");
  return result;
}

SelectOptions select_options_of(const rapt_select_options* options) {
  const rapt_select_options given = read_optional_params(options, "options");
  check(given.reserved == 0, "options->reserved is ", given.reserved, ": must be 0");
  SelectOptions result;
  if (given.backend) result.backend = given.backend;
  if (given.flash_attention_version) result.flash_attention_version = given.flash_attention_version;
  if (to_flag(given.has_layout, "options->has_layout"))
    result.layout = to_enum(given.layout, KvLayout::kHND, "options->layout");
  else
    check(given.layout == 0, "options->layout is ", given.layout,
          ", but has_layout is 0: set it to 1");
  result.manager_page_size = given.manager_page_size;
  if (given.context_parallel_size) result.context_parallel_size = given.context_parallel_size;
  return result;
}

rapt_selection selection_of(const Selection& selection) {
  rapt_selection result{};
  result.backend = to_string(selection.backend);
  result.version = selection.version;
  result.layout = static_cast<rapt_kv_layout>(selection.layout);
  result.page_size = selection.page_size;
  result.graph = static_cast<rapt_graph_support>(selection.graph);
  return result;
}

}  // namespace rapt::c_api
