#include <optional>
#include <utility>
#include <vector>

#include "c_api/handles.hpp"
#include "c_api/params.hpp"
#include "c_api/spec.hpp"
#include "c_api/tensor.hpp"

namespace rapt::c_api {
namespace {

RopeArgs rope_of(const rapt_rope_args& args) {
  const rapt_rope_args given = read_params(&args, "args->rope");
  check(given.reserved == 0, "args->rope->reserved is ", given.reserved, ": must be 0");
  return {.positions = view_of(given.positions, "positions"),
          .cos_sin = view_of(given.cos_sin, "cos_sin"),
          .style = to_enum(given.style, RopeStyle::kInterleaved, "args->rope->style"),
          .q = view_of(given.q, "q"),
          .q_out = view_of(given.q_out, "q_out")};
}

}  // namespace
}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_attention_create(rapt_context* context, const rapt_attention_spec* spec,
                                  const rapt_select_options* options, rapt_attention** attention) {
  return guarded([&] {
    require(context, "context");
    require(attention, "attention");
    auto made = std::make_shared<rapt::Attention>(*context->context, spec_of(spec),
                                                  select_options_of(options));
    *attention = new rapt_attention{context->context, std::move(made)};
  });
}

void rapt_attention_destroy(rapt_attention* attention) {
  delete attention;
}

rapt_status rapt_attention_selection(const rapt_attention* attention, rapt_selection* selection) {
  return guarded([&] {
    require(attention, "attention");
    const size_t size = checked_struct_size(selection, "selection");
    write_params(selection, size, selection_of(attention->attention->selection()));
  });
}

rapt_status rapt_attention_explain(const rapt_attention* attention, char* text, size_t text_bytes,
                                   size_t* length) {
  return guarded([&] {
    require(attention, "attention");
    copy_text(attention->attention->selection().explain(), text, text_bytes, length);
  });
}

rapt_status rapt_write_kv(const rapt_attention* attention, const rapt_write_kv_args* args) {
  return guarded([&] {
    require(attention, "attention");
    const rapt_write_kv_args given = read_params(args, "args");
    const auto rope = given.rope ? std::optional(rope_of(*given.rope)) : std::nullopt;
    attention->attention->write_kv({
        .k = view_of(given.k, "k"),
        .v = view_of(given.v, "v"),
        .slot_mapping = view_of(given.slot_mapping, "slot_mapping"),
        .cache = {view_of(given.cache_k, "cache_k"), view_of(given.cache_v, "cache_v")},
        .k_scale = view_of(given.k_scale, "k_scale"),
        .v_scale = view_of(given.v_scale, "v_scale"),
        .rope = rope,
        .stream = given.stream,
    });
  });
}

rapt_status rapt_merge(rapt_context* context, const rapt_merge_args* args) {
  return guarded([&] {
    require(context, "context");
    const rapt_merge_args given = read_params(args, "args");
    require(given.outs, "args->outs");
    require(given.lses, "args->lses");
    std::vector<rapt::TensorView> outs, lses;
    for (size_t i = 0; i < given.num_states; i++) {
      outs.push_back(view_of(require(given.outs[i], "args->outs[i]"), "outs"));
      lses.push_back(view_of(require(given.lses[i], "args->lses[i]"), "lses"));
    }
    rapt::merge(*context->context, {
                                       .outs = outs,
                                       .lses = lses,
                                       .out = view_of(given.out, "out"),
                                       .lse = view_of(given.lse, "lse"),
                                       .stream = given.stream,
                                   });
  });
}
