#include <span>
#include <utility>

#include "c_api/handles.hpp"
#include "c_api/params.hpp"
#include "c_api/tensor.hpp"

namespace rapt::c_api {
namespace {

Batch batch_of(const rapt_batch* batch) {
  const rapt_batch given = read_params(batch, "batch");
  check(given.num_requests >= 0 && given.num_requests < INT32_MAX, "batch->num_requests is ",
        given.num_requests, ": must be in [0, ", INT32_MAX, ")");
  require(given.query_start, "batch->query_start");
  if (given.num_requests > 0) require(given.kv_len, "batch->kv_len");
  const auto num_requests = static_cast<size_t>(given.num_requests);
  Batch result;
  result.query_start = std::span(given.query_start, num_requests + 1);
  result.kv_len = std::span(given.kv_len, num_requests);
  result.page_table = view_of(given.page_table, "page_table");
  result.num_pages = given.num_pages;
  if (given.kv_start) result.kv_start = std::span(given.kv_start, num_requests + 1);
  return result;
}

GraphEnvelope envelope_of(const rapt_graph_envelope* envelope) {
  const rapt_graph_envelope given = read_params(envelope, "envelope");
  return {.max_requests = given.max_requests,
          .max_tokens = given.max_tokens,
          .max_query_len = given.max_query_len,
          .max_kv_len = given.max_kv_len,
          .num_pages = given.num_pages,
          .page_table = view_of(given.page_table, "page_table"),
          .max_kv_rows = given.max_kv_rows};
}

}  // namespace
}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_plan_create(const rapt_attention* attention, const rapt_batch* batch,
                             rapt_plan** plan) {
  return guarded([&] {
    require(attention, "attention");
    require(plan, "plan");
    *plan = new rapt_plan{attention->context, attention->attention,
                          attention->attention->plan(batch_of(batch))};
  });
}

rapt_status rapt_replan(rapt_plan* plan, const rapt_batch* batch) {
  return guarded([&] {
    require(plan, "plan");
    plan->attention->replan(plan->plan, batch_of(batch));
  });
}

rapt_status rapt_graph_plan_create(const rapt_attention* attention,
                                   const rapt_graph_envelope* envelope, void* stream,
                                   rapt_plan** plan) {
  return guarded([&] {
    require(attention, "attention");
    require(plan, "plan");
    *plan = new rapt_plan{attention->context, attention->attention,
                          attention->attention->plan(envelope_of(envelope), stream)};
  });
}

rapt_status rapt_graph_replan(rapt_plan* plan, const rapt_batch* batch, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    plan->attention->replan(plan->plan, batch_of(batch), stream);
  });
}

rapt_status rapt_graph_custom_mask_bytes(const rapt_graph_envelope* envelope, int64_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = rapt::custom_mask_bytes(envelope_of(envelope));
  });
}

void rapt_plan_destroy(rapt_plan* plan) {
  delete plan;
}

rapt_status rapt_plan_workspace_bytes(const rapt_plan* plan, size_t* bytes) {
  return guarded([&] {
    require(plan, "plan");
    *require(bytes, "bytes") = plan->plan.workspace_bytes();
  });
}

rapt_status rapt_plan_num_tokens(const rapt_plan* plan, int64_t* num_tokens) {
  return guarded([&] {
    require(plan, "plan");
    *require(num_tokens, "num_tokens") = plan->plan.num_tokens();
  });
}

rapt_status rapt_plan_describe(const rapt_plan* plan, char* text, size_t text_bytes,
                               size_t* length) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan.describe(), text, text_bytes, length);
  });
}

rapt_status rapt_custom_mask_bytes(const rapt_batch* batch, int64_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = rapt::custom_mask_bytes(batch_of(batch));
  });
}

rapt_status rapt_run(const rapt_plan* plan, const rapt_run_args* args) {
  return guarded([&] {
    require(plan, "plan");
    const rapt_run_args given = read_params(args, "args");
    plan->attention->run(plan->plan,
                         {
                             .q = view_of(given.q, "q"),
                             .k = view_of(given.k, "k"),
                             .v = view_of(given.v, "v"),
                             .out = view_of(given.out, "out"),
                             .lse = view_of(given.lse, "lse"),
                             .alibi_slopes = view_of(given.alibi_slopes, "alibi_slopes"),
                             .sinks = view_of(given.sinks, "sinks"),
                             .custom_mask = view_of(given.custom_mask, "custom_mask"),
                             .k_scale = view_of(given.k_scale, "k_scale"),
                             .v_scale = view_of(given.v_scale, "v_scale"),
                             .workspace = {given.workspace, given.workspace_bytes},
                             .stream = given.stream,
                         });
  });
}
