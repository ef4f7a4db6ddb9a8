/* The step of examples/attention_cpp through the C interface: one request decodes its 20th token,
 * one prefills a prompt of 12. A query at position p sees p + 1 keys; with zero queries lse is
 * ln(p + 1), and out is the mean of the values it sees. */
#include "rapt/rapt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* begin: step */
/* begin: must */
/* Every call that can fail gives a status, and this thread's message. */
static void must(rapt_status status) {
  if (status == RAPT_OK) return;
  fprintf(stderr, "%s: %s\n", rapt_status_name(status), rapt_last_error_message());
  exit(1);
}
/* end: must */

static const DLDataType kFloat = {kDLFloat, 32, 1}, kInt32 = {kDLInt, 32, 1},
                        kInt64 = {kDLInt, 64, 1};

/* begin: tensor */
/* A row-major tensor in CPU memory: null strides. */
static DLTensor tensor(void* data, DLDataType dtype, int32_t ndim, int64_t* shape) {
  DLTensor result = {.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype};
  result.shape = shape;
  return result;
}
/* end: tensor */

static int32_t query_start[] = {0, 1, 13}, kv_len[] = {20, 12};
static int32_t page_table[] = {3, 5, 0, -1}; /* page 3 then 5, and page 0 */
static float k[32 * 2 * 64], v[32 * 2 * 64], q[13 * 8 * 64], out[13 * 8 * 64], lse[8 * 13];

static void attend(void) {
  /* begin: attention */
  rapt_context* context;
  must(rapt_context_create(NULL, &context));
  const rapt_attention_spec spec = {.struct_size = sizeof spec,
                                    .num_query_heads = 8,
                                    .num_kv_heads = 2,
                                    .head_dim_qk = 64,
                                    .dtype = kFloat,
                                    .page_size = 16,
                                    .needs_lse = 1};
  rapt_attention* attention;
  must(rapt_attention_create(context, &spec, NULL, &attention));
  /* end: attention */

  /* begin: pool */
  /* The caller owns the pool; the geometry says how K and V lie in it. */
  rapt_kv_cache_geometry geometry = {.struct_size = sizeof geometry};
  must(rapt_kv_cache_geometry_of(&spec, 8, RAPT_KV_PAGES_KV, RAPT_NHD, 0, &geometry));
  int64_t pool_bytes, cache_ints[RAPT_KV_VIEW_INTS];
  must(rapt_kv_cache_total_bytes(&geometry, &pool_bytes));
  void* pool = malloc((size_t)pool_bytes);
  const DLDevice cpu = {kDLCPU, 0};
  DLTensor cache_k, cache_v;
  must(rapt_kv_cache_view(&geometry, pool, 0, cpu, &cache_k, &cache_v, cache_ints));
  /* end: pool */

  /* Keys and values of all 32 tokens; a token's value is its position. */
  int64_t slots[32], kv_shape[] = {32, 2, 64}, slots_shape[] = {32};
  int token = 0;
  for (int b = 0; b < 2; b++)
    for (int position = 0; position < kv_len[b]; position++, token++) {
      for (int d = 0; d < 2 * 64; d++) {
        k[token * 2 * 64 + d] = 0.5f;
        v[token * 2 * 64 + d] = (float)position;
      }
      must(rapt_slot_of(&page_table[b * 2], 2, 16, position, &slots[token]));
    }
  const DLTensor k_rows = tensor(k, kFloat, 3, kv_shape), v_rows = tensor(v, kFloat, 3, kv_shape),
                 slot_mapping = tensor(slots, kInt64, 1, slots_shape);
  const rapt_write_kv_args written = {.struct_size = sizeof written,
                                      .k = &k_rows,
                                      .v = &v_rows,
                                      .slot_mapping = &slot_mapping,
                                      .cache_k = &cache_k,
                                      .cache_v = &cache_v};
  must(rapt_write_kv(attention, &written));

  /* Planned once per step, run once per layer. */
  int64_t table_shape[] = {2, 2};
  const DLTensor table = tensor(page_table, kInt32, 2, table_shape);
  const rapt_batch batch = {.struct_size = sizeof batch,
                            .num_requests = 2,
                            .query_start = query_start,
                            .kv_len = kv_len,
                            .page_table = &table,
                            .num_pages = 8};
  rapt_plan* plan;
  size_t workspace_bytes;
  must(rapt_plan_create(attention, &batch, &plan));
  must(rapt_plan_workspace_bytes(plan, &workspace_bytes));
  char* allocated = malloc(workspace_bytes + RAPT_WORKSPACE_ALIGNMENT);
  const size_t past = (uintptr_t)allocated % RAPT_WORKSPACE_ALIGNMENT;

  int64_t q_shape[] = {13, 8, 64}, lse_shape[] = {8, 13};
  const DLTensor q_rows = tensor(q, kFloat, 3, q_shape), out_rows = tensor(out, kFloat, 3, q_shape),
                 lse_rows = tensor(lse, kFloat, 2, lse_shape);
  /* begin: run */
  const rapt_run_args args = {.struct_size = sizeof args,
                              .q = &q_rows,
                              .k = &cache_k,
                              .v = &cache_v,
                              .out = &out_rows,
                              .lse = &lse_rows,
                              .workspace = allocated + (RAPT_WORKSPACE_ALIGNMENT - past),
                              .workspace_bytes = workspace_bytes};
  must(rapt_run(plan, &args));
  /* end: run */

  rapt_plan_destroy(plan);
  rapt_attention_destroy(attention);
  rapt_context_destroy(context);
  free(allocated);
  free(pool);
}
/* end: step */

int main(void) {
  attend();
  double worst = 0;
  for (int token = 0; token < 13; token++) {
    const double position = token == 0 ? 19 : token - 1;
    for (int head = 0; head < 8; head++) {
      worst = fmax(worst, fabs(lse[head * 13 + token] - log(position + 1)));
      for (int d = 0; d < 64; d++)
        worst = fmax(worst, fabs(out[(token * 8 + head) * 64 + d] - position / 2));
    }
  }
  printf("rapt %s, 13 tokens of 2 requests: off by %.1e at most\n", rapt_version(), worst);
  return worst < 1e-5 ? 0 : 1;
}
