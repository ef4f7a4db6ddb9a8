/* The C interface's layout, frozen: a change here breaks callers that are already compiled. Fields
 * may be added at a struct's end, with its size, and enumerators after the last; nothing moves. */
#include <stddef.h>

#include "rapt/rapt.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " changed its size")
/* Fields listed in order leave no padding: bytes that a compiler may leave undefined would be read
 * as a field by a later version. */
#define FIELD(type, field, offset, bytes)                                           \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved"); \
  _Static_assert(sizeof(((type*)0)->field) == (bytes), #type "." #field " changed its size")
#define VALUE(name, value) _Static_assert((name) == (value), #name " changed its value")

_Static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8, "frozen for 64-bit machines");

SIZE(rapt_context_options, 88);
FIELD(rapt_context_options, struct_size, 0, 8);
FIELD(rapt_context_options, num_threads, 8, 4);
FIELD(rapt_context_options, check_device_indices, 12, 4);
FIELD(rapt_context_options, parallel_for, 16, 8);
FIELD(rapt_context_options, parallel_for_user, 24, 8);
FIELD(rapt_context_options, log, 32, 8);
FIELD(rapt_context_options, log_user, 40, 8);
FIELD(rapt_context_options, isa, 48, 8);
FIELD(rapt_context_options, device, 56, 8);
FIELD(rapt_context_options, packs, 64, 8);
FIELD(rapt_context_options, num_packs, 72, 8);
FIELD(rapt_context_options, cache_folder, 80, 8);

SIZE(rapt_device_buffer_info, 40);
FIELD(rapt_device_buffer_info, struct_size, 0, 8);
FIELD(rapt_device_buffer_info, data, 8, 8);
FIELD(rapt_device_buffer_info, bytes, 16, 8);
FIELD(rapt_device_buffer_info, device, 24, 8);
FIELD(rapt_device_buffer_info, host_accessible, 32, 4);
FIELD(rapt_device_buffer_info, reserved, 36, 4);

SIZE(rapt_device_info, 120);
FIELD(rapt_device_info, struct_size, 0, 8);
FIELD(rapt_device_info, name, 8, 32);
FIELD(rapt_device_info, device_type, 40, 4);
FIELD(rapt_device_info, num_cores, 44, 4);
FIELD(rapt_device_info, isa, 48, 16);
FIELD(rapt_device_info, l1_bytes, 64, 8);
FIELD(rapt_device_info, l2_bytes, 72, 8);
FIELD(rapt_device_info, l3_bytes, 80, 8);
FIELD(rapt_device_info, compute_capability, 88, 4);
FIELD(rapt_device_info, num_sms, 92, 4);
FIELD(rapt_device_info, shared_memory_bytes_per_block, 96, 8);
FIELD(rapt_device_info, memory_bytes, 104, 8);
FIELD(rapt_device_info, memory_bandwidth, 112, 8);

SIZE(rapt_attention_spec, 96);
FIELD(rapt_attention_spec, struct_size, 0, 8);
FIELD(rapt_attention_spec, num_query_heads, 8, 4);
FIELD(rapt_attention_spec, num_kv_heads, 12, 4);
FIELD(rapt_attention_spec, head_dim_qk, 16, 4);
FIELD(rapt_attention_spec, head_dim_vo, 20, 4);
FIELD(rapt_attention_spec, dtype, 24, 4);
FIELD(rapt_attention_spec, kv_format, 28, 4);
FIELD(rapt_attention_spec, page_size, 32, 4);
FIELD(rapt_attention_spec, kind, 36, 4);
FIELD(rapt_attention_spec, causal, 40, 4);
FIELD(rapt_attention_spec, has_window, 44, 4);
FIELD(rapt_attention_spec, window_left, 48, 8);
FIELD(rapt_attention_spec, window_right, 56, 8);
FIELD(rapt_attention_spec, scale, 64, 4);
FIELD(rapt_attention_spec, softcap, 68, 4);
FIELD(rapt_attention_spec, alibi, 72, 4);
FIELD(rapt_attention_spec, sinks, 76, 4);
FIELD(rapt_attention_spec, custom_mask, 80, 4);
FIELD(rapt_attention_spec, kv_scales, 84, 4);
FIELD(rapt_attention_spec, needs_lse, 88, 4);
FIELD(rapt_attention_spec, batch_invariant, 92, 4);

SIZE(rapt_select_options, 40);
FIELD(rapt_select_options, struct_size, 0, 8);
FIELD(rapt_select_options, backend, 8, 8);
FIELD(rapt_select_options, flash_attention_version, 16, 4);
FIELD(rapt_select_options, has_layout, 20, 4);
FIELD(rapt_select_options, layout, 24, 4);
FIELD(rapt_select_options, manager_page_size, 28, 4);
FIELD(rapt_select_options, context_parallel_size, 32, 4);
FIELD(rapt_select_options, reserved, 36, 4);

SIZE(rapt_selection, 32);
FIELD(rapt_selection, struct_size, 0, 8);
FIELD(rapt_selection, backend, 8, 8);
FIELD(rapt_selection, version, 16, 4);
FIELD(rapt_selection, layout, 20, 4);
FIELD(rapt_selection, page_size, 24, 4);
FIELD(rapt_selection, graph, 28, 4);

SIZE(rapt_verdict, 56);
FIELD(rapt_verdict, struct_size, 0, 8);
FIELD(rapt_verdict, backend, 8, 8);
FIELD(rapt_verdict, version, 16, 4);
FIELD(rapt_verdict, accepted, 20, 4);
FIELD(rapt_verdict, num_reasons, 24, 8);
FIELD(rapt_verdict, reasons, 32, 8);
FIELD(rapt_verdict, num_notes, 40, 8);
FIELD(rapt_verdict, notes, 48, 8);

SIZE(rapt_rope_args, 48);
FIELD(rapt_rope_args, struct_size, 0, 8);
FIELD(rapt_rope_args, positions, 8, 8);
FIELD(rapt_rope_args, cos_sin, 16, 8);
FIELD(rapt_rope_args, q, 24, 8);
FIELD(rapt_rope_args, q_out, 32, 8);
FIELD(rapt_rope_args, style, 40, 4);
FIELD(rapt_rope_args, reserved, 44, 4);

SIZE(rapt_write_kv_args, 80);
FIELD(rapt_write_kv_args, struct_size, 0, 8);
FIELD(rapt_write_kv_args, k, 8, 8);
FIELD(rapt_write_kv_args, v, 16, 8);
FIELD(rapt_write_kv_args, slot_mapping, 24, 8);
FIELD(rapt_write_kv_args, cache_k, 32, 8);
FIELD(rapt_write_kv_args, cache_v, 40, 8);
FIELD(rapt_write_kv_args, k_scale, 48, 8);
FIELD(rapt_write_kv_args, v_scale, 56, 8);
FIELD(rapt_write_kv_args, stream, 64, 8);
FIELD(rapt_write_kv_args, rope, 72, 8);

SIZE(rapt_batch, 56);
FIELD(rapt_batch, struct_size, 0, 8);
FIELD(rapt_batch, num_requests, 8, 8);
FIELD(rapt_batch, query_start, 16, 8);
FIELD(rapt_batch, kv_len, 24, 8);
FIELD(rapt_batch, page_table, 32, 8);
FIELD(rapt_batch, num_pages, 40, 8);
FIELD(rapt_batch, kv_start, 48, 8);

SIZE(rapt_graph_envelope, 48);
FIELD(rapt_graph_envelope, struct_size, 0, 8);
FIELD(rapt_graph_envelope, max_requests, 8, 4);
FIELD(rapt_graph_envelope, max_tokens, 12, 4);
FIELD(rapt_graph_envelope, max_query_len, 16, 4);
FIELD(rapt_graph_envelope, max_kv_len, 20, 4);
FIELD(rapt_graph_envelope, num_pages, 24, 8);
FIELD(rapt_graph_envelope, page_table, 32, 8);
FIELD(rapt_graph_envelope, max_kv_rows, 40, 8);

SIZE(rapt_run_args, 112);
FIELD(rapt_run_args, struct_size, 0, 8);
FIELD(rapt_run_args, q, 8, 8);
FIELD(rapt_run_args, k, 16, 8);
FIELD(rapt_run_args, v, 24, 8);
FIELD(rapt_run_args, out, 32, 8);
FIELD(rapt_run_args, lse, 40, 8);
FIELD(rapt_run_args, alibi_slopes, 48, 8);
FIELD(rapt_run_args, sinks, 56, 8);
FIELD(rapt_run_args, custom_mask, 64, 8);
FIELD(rapt_run_args, k_scale, 72, 8);
FIELD(rapt_run_args, v_scale, 80, 8);
FIELD(rapt_run_args, workspace, 88, 8);
FIELD(rapt_run_args, workspace_bytes, 96, 8);
FIELD(rapt_run_args, stream, 104, 8);

SIZE(rapt_merge_args, 56);
FIELD(rapt_merge_args, struct_size, 0, 8);
FIELD(rapt_merge_args, num_states, 8, 8);
FIELD(rapt_merge_args, outs, 16, 8);
FIELD(rapt_merge_args, lses, 24, 8);
FIELD(rapt_merge_args, out, 32, 8);
FIELD(rapt_merge_args, lse, 40, 8);
FIELD(rapt_merge_args, stream, 48, 8);

SIZE(rapt_kv_cache_geometry, 48);
FIELD(rapt_kv_cache_geometry, struct_size, 0, 8);
FIELD(rapt_kv_cache_geometry, shape, 8, 4);
FIELD(rapt_kv_cache_geometry, layout, 12, 4);
FIELD(rapt_kv_cache_geometry, num_pages, 16, 8);
FIELD(rapt_kv_cache_geometry, page_size, 24, 4);
FIELD(rapt_kv_cache_geometry, num_kv_heads, 28, 4);
FIELD(rapt_kv_cache_geometry, head_dim_qk, 32, 4);
FIELD(rapt_kv_cache_geometry, head_dim_vo, 36, 4);
FIELD(rapt_kv_cache_geometry, format, 40, 4);
FIELD(rapt_kv_cache_geometry, num_layers, 44, 4);

SIZE(rapt_page_allocator_stats, 40);
FIELD(rapt_page_allocator_stats, struct_size, 0, 8);
FIELD(rapt_page_allocator_stats, num_pages, 8, 8);
FIELD(rapt_page_allocator_stats, num_free_pages, 16, 8);
FIELD(rapt_page_allocator_stats, num_used_pages, 24, 8);
FIELD(rapt_page_allocator_stats, num_shared_pages, 32, 8);

SIZE(rapt_sample_args, 80);
FIELD(rapt_sample_args, struct_size, 0, 8);
FIELD(rapt_sample_args, logits, 8, 8);
FIELD(rapt_sample_args, temperature, 16, 8);
FIELD(rapt_sample_args, top_k, 24, 8);
FIELD(rapt_sample_args, top_p, 32, 8);
FIELD(rapt_sample_args, min_p, 40, 8);
FIELD(rapt_sample_args, seed, 48, 8);
FIELD(rapt_sample_args, offset, 56, 8);
FIELD(rapt_sample_args, tokens, 64, 8);
FIELD(rapt_sample_args, statuses, 72, 8);

SIZE(rapt_status, 4);
VALUE(RAPT_OK, 0);
VALUE(RAPT_INVALID_ARGUMENT, 1);
VALUE(RAPT_UNSUPPORTED, 2);
VALUE(RAPT_OUT_OF_MEMORY, 3);
VALUE(RAPT_MISSING_LIBRARY, 4);
VALUE(RAPT_DEVICE, 5);
VALUE(RAPT_IO, 6);
VALUE(RAPT_INTERNAL, 7);

SIZE(rapt_log_level, 4);
VALUE(RAPT_LOG_DEBUG, 0);
VALUE(RAPT_LOG_INFO, 1);
VALUE(RAPT_LOG_WARNING, 2);
VALUE(RAPT_LOG_ERROR, 3);

SIZE(rapt_attention_kind, 4);
VALUE(RAPT_DECODER, 0);
VALUE(RAPT_ENCODER, 1);
VALUE(RAPT_ENCODER_ONLY, 2);
VALUE(RAPT_ENCODER_DECODER, 3);

SIZE(rapt_kv_format, 4);
VALUE(RAPT_KV_AUTO, 0);
VALUE(RAPT_KV_FLOAT32, 1);
VALUE(RAPT_KV_FLOAT16, 2);
VALUE(RAPT_KV_BFLOAT16, 3);
VALUE(RAPT_KV_FP8_E4M3, 4);
VALUE(RAPT_KV_FP8_E5M2, 5);
VALUE(RAPT_KV_INT8_PER_TOKEN_HEAD, 6);
VALUE(RAPT_KV_FP8_PER_TOKEN_HEAD, 7);
VALUE(RAPT_KV_INT4_PER_TOKEN_HEAD, 8);
VALUE(RAPT_KV_NVFP4, 9);
VALUE(RAPT_KV_TURBOQUANT_K8V4, 10);
VALUE(RAPT_KV_TURBOQUANT_4BIT_NC, 11);
VALUE(RAPT_KV_TURBOQUANT_K3V4_NC, 12);
VALUE(RAPT_KV_TURBOQUANT_3BIT_NC, 13);

SIZE(rapt_kv_scales, 4);
VALUE(RAPT_SCALES_NONE, 0);
VALUE(RAPT_SCALES_PER_TENSOR, 1);
VALUE(RAPT_SCALES_PER_HEAD, 2);
VALUE(RAPT_SCALES_PER_TOKEN_HEAD, 3);

SIZE(rapt_choice, 4);
VALUE(RAPT_DEFAULT, 0);
VALUE(RAPT_YES, 1);
VALUE(RAPT_NO, 2);

SIZE(rapt_kv_layout, 4);
VALUE(RAPT_NHD, 0);
VALUE(RAPT_HND, 1);

SIZE(rapt_graph_support, 4);
VALUE(RAPT_GRAPH_NEVER, 0);
VALUE(RAPT_GRAPH_SINGLE_TOKEN_DECODE, 1);
VALUE(RAPT_GRAPH_UNIFORM_BATCH, 2);
VALUE(RAPT_GRAPH_ALWAYS, 3);

SIZE(rapt_kv_shape, 4);
VALUE(RAPT_KV_PAGES_KV, 0);
VALUE(RAPT_KV_KV_PAGES, 1);
VALUE(RAPT_KV_PACKED, 2);

SIZE(rapt_rope_style, 4);
VALUE(RAPT_ROPE_HALF_SPLIT, 0);
VALUE(RAPT_ROPE_INTERLEAVED, 1);

SIZE(rapt_sample_status, 4);
VALUE(RAPT_SAMPLE_OK, 0);
VALUE(RAPT_SAMPLE_NAN, 1);
VALUE(RAPT_SAMPLE_NOTHING_LEFT, 2);

VALUE(RAPT_WORKSPACE_ALIGNMENT, 64);
VALUE(RAPT_KV_MAX_AXES, 6);
VALUE(RAPT_KV_VIEW_INTS, 16);

/* The structs hold DLPack's by value or by pointer. */
SIZE(DLDataType, 4);
SIZE(DLDevice, 8);
SIZE(DLTensor, 48);
