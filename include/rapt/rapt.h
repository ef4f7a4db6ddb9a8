/* Rapt's C interface: the attention layer of an LLM serving engine, for C99 and whatever calls C.
 *
 *   rapt_context* context;       rapt_context_create(NULL, &context);
 *   rapt_attention* attention;   rapt_attention_create(context, &spec, NULL, &attention);
 *   rapt_plan* plan;             rapt_plan_create(attention, &batch, &plan);      once per step
 *                                rapt_write_kv(attention, &new_keys_and_values);  once per layer
 *                                rapt_run(plan, &tensors);                        once per layer
 *
 * Rules that hold everywhere below:
 *
 * Status. Every function that can fail returns a rapt_status; rapt_last_error_message() then says
 * what was wrong, with the argument, its value, its bound and the remedy. A failed call has written
 * nothing: no tensor, no struct, no handle. Null handles and null pointers are
 * RAPT_INVALID_ARGUMENT unless a comment allows them. No C++ exception leaves a function.
 *
 * Structs. Each begins with struct_size, which the caller sets to sizeof the struct it was compiled
 * with; zero in every other field is that field's default, so
 *     rapt_attention_spec spec = {.struct_size = sizeof spec, .num_query_heads = 32, ...};
 * says only what differs. A shorter struct (an older caller) is extended with zeros. A longer one
 * (a newer caller) is accepted while the bytes that this library does not know are zero, and
 * refused otherwise: nothing is silently ignored. Of structs that are filled for the caller, only
 * struct_size is read, and struct_size bytes are written.
 *
 * Tensors are DLTensor, borrowed for the call: data + byte_offset is the first element, strides
 * count elements and may be NULL for row-major, lanes is 1, ndim is 1 to 6, and the last axis is
 * contiguous. Accepted types: float 32 and 16, bfloat 16, float8_e4m3fn, float8_e5m2, uint 8,
 * int 32 and 64. Accepted devices: kDLCPU, kDLCUDAHost (used as CPU memory) and kDLCUDA.
 *
 * Ownership. The caller owns all large memory: tensors, cache pool, workspace. Handles are made by
 * *_create and freed by *_destroy, which accepts NULL; they may be destroyed in any order, since
 * each keeps what it stands on alive. Strings returned are owned by the library: static, unless a
 * comment says of which handle.
 *
 * Threads. A rapt_context may be shared by any number of threads. Of the other handles, one passed
 * as const may be used by several threads at once, one passed as non-const by one thread at a time.
 */
#ifndef RAPT_RAPT_H_
#define RAPT_RAPT_H_

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"
#include "rapt/export.hpp" /* RAPT_API, also valid C */
#include "rapt/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

/* Enumerations are int32_t, so that their width is fixed and any value may be checked. */
typedef int32_t rapt_status;
enum {
  RAPT_OK = 0,
  RAPT_INVALID_ARGUMENT = 1, /* a value, shape, stride, dtype or length outside its bound */
  RAPT_UNSUPPORTED = 2,      /* valid, but refused by the asked-for backend, or by every one */
  RAPT_OUT_OF_MEMORY = 3,    /* an allocation failed, or a page pool has no free page */
  RAPT_MISSING_LIBRARY = 4,  /* a run-time library could not be loaded */
  RAPT_DEVICE = 5,           /* a device or driver reported a failure */
  RAPT_IO = 6,               /* a file could not be read or is malformed */
  RAPT_INTERNAL = 7          /* a broken invariant of Rapt's own: please report */
};

/* "ok", "invalid_argument", ...; "unknown" for any other number. */
RAPT_API const char* rapt_status_name(rapt_status status);

/* The message of this thread's most recent failed call, "" if none has failed. Valid until the
 * thread's next failed call; a call that succeeds leaves it alone. */
RAPT_API const char* rapt_last_error_message(void);

/* "0.1.0", of the loaded library; RAPT_VERSION_MAJOR, _MINOR and _PATCH are the headers'. */
RAPT_API const char* rapt_version(void);

/* ---- Context: threads and callbacks ---------------------------------------------------------- */

typedef struct rapt_context rapt_context;

typedef int32_t rapt_log_level;
enum { RAPT_LOG_DEBUG = 0, RAPT_LOG_INFO = 1, RAPT_LOG_WARNING = 2, RAPT_LOG_ERROR = 3 };

/* One task of a parallel loop. Never throws and never waits for another task. */
typedef void (*rapt_task)(void* task_data, int32_t index);

/* The caller's thread pool: calls task(task_data, i) exactly once for every i in [0, num_tasks), on
 * any threads, in any order, and returns when all are done. Called by whichever thread runs
 * attention; several may call at once if several threads run. */
typedef void (*rapt_parallel_for)(void* user, int32_t num_tasks, rapt_task task, void* task_data);

/* `message`, which says what was chosen and why, in lines of which the last is not ended, is valid
 * during the call only. Called by whichever thread made the call it is about. */
typedef void (*rapt_log)(void* user, rapt_log_level level, const char* message);

typedef struct rapt_context_options {
  size_t struct_size;
  int32_t num_threads;          /* CPU threads with the caller's; 0 = cores this process may use */
  int32_t check_device_indices; /* 0/1, GPUs: each run looks at the page ids of a table in device
                                   memory, each write_kv at its slots, before anything follows
                                   them; both then wait for the stream, which must not be
                                   captured. For debugging; also RAPT_CHECK_DEVICE_INDICES=1 */
  rapt_parallel_for parallel_for; /* NULL = Rapt's own pool */
  void* parallel_for_user;        /* first argument of parallel_for; outlives the context */
  rapt_log log;                   /* NULL = silent */
  void* log_user;                 /* first argument of log; outlives the context */
  const char* isa;    /* "baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16": a lower level than
                         the processor has; NULL = what it has */
  const char* device; /* where attention runs: NULL or "cpu"; "cuda" or "cuda:1", a GPU by its
                         number; "emulated-sm80", kernels of that compute capability on the CPU */
  const char* const*
      packs; /* [num_packs] GPUs: files of compiled kernels, asked in this order; then
                those that RAPT_PACK names, then rapt/core.rpk beside the library */
  size_t num_packs;
  const char* cache_folder; /* GPUs: keeps what was compiled; "" = nothing is kept, NULL =
                               RAPT_CACHE_DIR, else XDG_CACHE_HOME/rapt, else HOME/.cache/rapt */
} rapt_context_options;

/* `options` may be NULL. INVALID_ARGUMENT: num_threads out of range, an unknown ISA or device, an
 * ISA this processor lacks, a device that is not there. MISSING_LIBRARY: no driver for the device.
 * DEVICE: the driver fails. IO: a pack cannot be read. A context may be used from several threads,
 * which take turns on its pool. */
RAPT_API rapt_status rapt_context_create(const rapt_context_options* options,
                                         rapt_context** context);
RAPT_API void rapt_context_destroy(rapt_context* context);
RAPT_API rapt_status rapt_context_num_threads(const rapt_context* context, int32_t* num_threads);

/* Waits for all work of the CUDA stream; NULL is the default one. Nothing to do on the CPU. */
RAPT_API rapt_status rapt_context_synchronize(const rapt_context* context, void* stream);

/* ---- Memory of a context's device ------------------------------------------------------------ */

/* For programs without CUDA's toolkit; any other memory of the device is as good. */
typedef struct rapt_device_buffer rapt_device_buffer;

/* Uninitialised, aligned to 256 bytes. OUT_OF_MEMORY says how much was asked for. May wait for the
 * device, as rapt_device_buffer_destroy may; work on the buffer must be done by then. */
RAPT_API rapt_status rapt_device_buffer_create(rapt_context* context, size_t bytes,
                                               rapt_device_buffer** buffer);
RAPT_API void rapt_device_buffer_destroy(rapt_device_buffer* buffer);

typedef struct rapt_device_buffer_info {
  size_t struct_size;
  void* data; /* NULL if bytes is 0 */
  size_t bytes;
  DLDevice device;         /* for tensors that lie in it */
  int32_t host_accessible; /* 0/1: the host may read and write data when no work is under way */
  int32_t reserved;        /* 0 */
} rapt_device_buffer_info;

RAPT_API rapt_status rapt_device_buffer_get_info(const rapt_device_buffer* buffer,
                                                 rapt_device_buffer_info* info);
/* Copies of `bytes` bytes at `offset` that take their turn on the CUDA stream (NULL: the default
 * one) and are done when the call returns. INVALID_ARGUMENT for what lies outside. */
RAPT_API rapt_status rapt_device_buffer_copy_from_host(rapt_device_buffer* buffer, const void* from,
                                                       size_t bytes, size_t offset, void* stream);
RAPT_API rapt_status rapt_device_buffer_copy_to_host(const rapt_device_buffer* buffer, void* to,
                                                     size_t bytes, size_t offset, void* stream);

/* ---- Devices as data ------------------------------------------------------------------------- */

typedef struct rapt_device_info {
  size_t struct_size;
  char name[32];              /* "cpu", "h100", ...; ends in a zero */
  DLDeviceType device_type;   /* kDLCPU or kDLCUDA */
  int32_t num_cores;          /* CPU */
  char isa[16];               /* CPU: as in rapt_context_options; "" for a GPU */
  int64_t l1_bytes;           /* per core */
  int64_t l2_bytes;           /* per core */
  int64_t l3_bytes;           /* per socket */
  int32_t compute_capability; /* CUDA: 10 * major + minor; 0 for a CPU */
  int32_t num_sms;
  int64_t shared_memory_bytes_per_block; /* opt-in maximum of one thread block */
  int64_t memory_bytes;
  double memory_bandwidth; /* bytes per second, as published */
} rapt_device_info;

/* The device of that name in Rapt's table: "cpu" (this machine), "cpu-avx2", "h100", "sm90", ...;
 * NULL is "cpu". INVALID_ARGUMENT lists the known names. The device need not be present. */
RAPT_API rapt_status rapt_device_info_of(const char* name, rapt_device_info* info);
/* The device plans of this context are made for: "cpu" with its ISA and thread count, or the GPU as
 * its driver describes it, its name cut to fit. */
RAPT_API rapt_status rapt_context_device(const rapt_context* context, rapt_device_info* info);
/* Names in table order: entry i for i < rapt_num_devices(), NULL beyond. */
RAPT_API size_t rapt_num_devices(void);
RAPT_API const char* rapt_device_name(size_t i);

/* ---- What a layer's attention is ------------------------------------------------------------- */

typedef int32_t rapt_attention_kind;
enum {
  RAPT_DECODER = 0,        /* self-attention over a KV cache; causal unless said otherwise */
  RAPT_ENCODER = 1,        /* the encoder half of an encoder-decoder: both ways, no cache */
  RAPT_ENCODER_ONLY = 2,   /* a bidirectional model: both ways, no cache */
  RAPT_ENCODER_DECODER = 3 /* cross-attention */
};

/* How a cache stores a token's key or value row. */
typedef int32_t rapt_kv_format;
enum {
  RAPT_KV_AUTO = 0, /* the query dtype */
  RAPT_KV_FLOAT32 = 1,
  RAPT_KV_FLOAT16 = 2,
  RAPT_KV_BFLOAT16 = 3,
  RAPT_KV_FP8_E4M3 = 4,
  RAPT_KV_FP8_E5M2 = 5,
  RAPT_KV_INT8_PER_TOKEN_HEAD = 6,
  RAPT_KV_FP8_PER_TOKEN_HEAD = 7,
  RAPT_KV_INT4_PER_TOKEN_HEAD = 8,
  RAPT_KV_NVFP4 = 9,
  RAPT_KV_TURBOQUANT_K8V4 = 10,
  RAPT_KV_TURBOQUANT_4BIT_NC = 11,
  RAPT_KV_TURBOQUANT_K3V4_NC = 12,
  RAPT_KV_TURBOQUANT_3BIT_NC = 13
};

/* Which scales dequantise the cache: k_scale multiplies scores, v_scale the output. */
typedef int32_t rapt_kv_scales;
enum {
  RAPT_SCALES_NONE = 0,
  RAPT_SCALES_PER_TENSOR = 1,
  RAPT_SCALES_PER_HEAD = 2,
  RAPT_SCALES_PER_TOKEN_HEAD = 3
};

/* An option whose default depends on others. */
typedef int32_t rapt_choice;
enum { RAPT_DEFAULT = 0, RAPT_YES = 1, RAPT_NO = 2 };

/* Score of a visible (query, key) pair: s = scale * (q . k), then softcap * tanh(s / softcap), then
 * the ALiBi bias -slope * |p - j|. Query i of Lq stands at p = i + Lk - Lq; with a window it sees
 * keys j with p - left <= j <= p + right, -1 = no limit on that side, so "W tokens with the query
 * itself" is (W - 1, 0). Fields marked 0/1 are flags. */
typedef struct rapt_attention_spec {
  size_t struct_size;
  int32_t num_query_heads;
  int32_t num_kv_heads;     /* divides num_query_heads */
  int32_t head_dim_qk;      /* elements of a query or key row */
  int32_t head_dim_vo;      /* elements of a value or output row; 0 = head_dim_qk */
  DLDataType dtype;         /* of q, of out, and of k and v where there is no cache; required */
  rapt_kv_format kv_format; /* of the cache */
  int32_t page_size;        /* tokens per page; 0 = no cache: ragged k and v */
  rapt_attention_kind kind;
  rapt_choice causal; /* default: yes for decoders, no for the other kinds, which refuse yes */
  int32_t has_window; /* 0/1; without it window_left and window_right must be 0 */
  int64_t window_left;
  int64_t window_right;
  float scale;         /* 0 = head_dim_qk^-0.5 */
  float softcap;       /* 0 = off; else in [1e-20, 1e20] */
  int32_t alibi;       /* 0/1: run is given alibi_slopes */
  int32_t sinks;       /* 0/1: run is given sinks, logits that join the denominator only */
  int32_t custom_mask; /* 0/1: run is given custom_mask, joined to causal and window by AND */
  rapt_kv_scales kv_scales;
  int32_t needs_lse;       /* 0/1: run writes lse */
  int32_t batch_invariant; /* 0/1: a request's bits do not depend on what else is in the batch */
} rapt_attention_spec;

/* ---- Selection: which backend, and why not the others ---------------------------------------- */

typedef int32_t rapt_kv_layout;
enum {
  RAPT_NHD = 0, /* within a page a token's heads are together */
  RAPT_HND = 1  /* within a page a head's tokens are together */
};

/* How much of a step a captured graph can hold. */
typedef int32_t rapt_graph_support;
enum {
  RAPT_GRAPH_NEVER = 0,
  RAPT_GRAPH_SINGLE_TOKEN_DECODE = 1,
  RAPT_GRAPH_UNIFORM_BATCH = 2,
  RAPT_GRAPH_ALWAYS = 3
};

typedef struct rapt_select_options {
  size_t struct_size;
  const char* backend; /* NULL, "" or "auto" = by priority; otherwise that one or an error */
  int32_t flash_attention_version; /* 2, 3 or 4; 0 = any */
  int32_t has_layout;              /* 0/1: the caller's cache layout is fixed */
  rapt_kv_layout layout;           /* that layout; 0 without has_layout */
  int32_t manager_page_size;       /* the caller's allocation unit; 0 = page_size */
  int32_t context_parallel_size;   /* ranks the KV cache is sharded over; 0 = 1 */
  int32_t reserved;                /* 0 */
} rapt_select_options;

typedef struct rapt_selection {
  size_t struct_size;
  const char* backend; /* "cpu", "reference", "flash_attention", ... */
  int32_t version;     /* FlashAttention generation, 0 for the others */
  rapt_kv_layout layout;
  int32_t page_size; /* kernel page size; manager pages are a multiple of it */
  rapt_graph_support graph;
} rapt_selection;

/* One backend's answer. The arrays belong to the rapt_verdicts. */
typedef struct rapt_verdict {
  size_t struct_size;
  const char* backend;
  int32_t version;
  int32_t accepted;           /* 0/1 */
  size_t num_reasons;         /* why not, all of them; 0 when accepted */
  const char* const* reasons; /* [num_reasons] */
  size_t num_notes;           /* how version, layout or page size came about */
  const char* const* notes;   /* [num_notes] */
} rapt_verdict;

/* The choice for `device` (a name as in rapt_device_info_of, NULL = "cpu"); `options` may be NULL.
 * Pure: no device need be present. INVALID_ARGUMENT: a malformed spec or an unknown backend name.
 * UNSUPPORTED: none accepts, or the named one does not; the message has every reason. */
RAPT_API rapt_status rapt_select(const rapt_attention_spec* spec, const char* device,
                                 const rapt_select_options* options, rapt_selection* selection);

/* Every backend's answer in priority order, also when none accepts. */
typedef struct rapt_verdicts rapt_verdicts;
RAPT_API rapt_status rapt_explain(const rapt_attention_spec* spec, const char* device,
                                  const rapt_select_options* options, rapt_verdicts** verdicts);
RAPT_API rapt_status rapt_verdicts_count(const rapt_verdicts* verdicts, size_t* count);
/* Verdict i, i < count. */
RAPT_API rapt_status rapt_verdicts_get(const rapt_verdicts* verdicts, size_t i,
                                       rapt_verdict* verdict);
RAPT_API void rapt_verdicts_destroy(rapt_verdicts* verdicts);

/* ---- Attention: a spec bound to its backend -------------------------------------------------- */

typedef struct rapt_attention rapt_attention;

/* Fails as rapt_select does. Cheap to keep: one per layer group. */
RAPT_API rapt_status rapt_attention_create(rapt_context* context, const rapt_attention_spec* spec,
                                           const rapt_select_options* options,
                                           rapt_attention** attention);
RAPT_API void rapt_attention_destroy(rapt_attention* attention);
RAPT_API rapt_status rapt_attention_selection(const rapt_attention* attention,
                                              rapt_selection* selection);
/* The choice and each rejected backend with its reasons, several lines for people. Copies at most
 * text_bytes - 1 characters and a zero into `text` (which may be NULL if text_bytes is 0), and the
 * length without the zero into *length, which may be NULL. */
RAPT_API rapt_status rapt_attention_explain(const rapt_attention* attention, char* text,
                                            size_t text_bytes, size_t* length);

/* Which two elements of a row are a pair of rotary position embedding. */
typedef int32_t rapt_rope_style;
enum {
  RAPT_ROPE_HALF_SPLIT = 0, /* i and i + rotary_dim / 2 */
  RAPT_ROPE_INTERLEAVED = 1 /* 2i and 2i + 1 */
};

/* Rotates keys on their way to the cache, and the same tokens' queries: (x, y) becomes
 * (x cos - y sin, y cos + x sin). Elements from rotary_dim on stay as they are. */
typedef struct rapt_rope_args {
  size_t struct_size;
  const DLTensor* positions; /* int32 or int64 [T']: each token's row of cos_sin */
  const DLTensor* cos_sin;   /* float32 [max_position, rotary_dim]: the cosines of a position's
                                rotary_dim / 2 angles, then their sines; rotary_dim <= Dqk */
  const DLTensor* q;         /* [T', Hq, Dqk] of spec.dtype, a row for each slot; or NULL */
  const DLTensor* q_out;     /* written: like q; may be q itself. NULL iff q is */
  rapt_rope_style style;
  int32_t reserved; /* 0 */
} rapt_rope_args;

/* This step's keys and values for the cache. T' >= n rows, Hkv KV heads. */
typedef struct rapt_write_kv_args {
  size_t struct_size;
  const DLTensor* k;            /* [T', Hkv, Dqk] of spec.dtype */
  const DLTensor* v;            /* [T', Hkv, Dvo] */
  const DLTensor* slot_mapping; /* int64 [n]: page * page_size + offset; negative = do not write */
  const DLTensor* cache_k;      /* [num_pages, page_size, Hkv, Dqk] of the format, any strides */
  const DLTensor* cache_v;      /* [num_pages, page_size, Hkv, Dvo] */
  const DLTensor* k_scale;      /* as in rapt_run_args: stored = value / scale */
  const DLTensor* v_scale;
  void* stream;               /* CUDA stream; unused on the CPU */
  const rapt_rope_args* rope; /* k is stored rotated; NULL = as it is */
} rapt_write_kv_args;

/* Scatters k and v into the cache. Two threads may write at once if their slots differ. */
RAPT_API rapt_status rapt_write_kv(const rapt_attention* attention, const rapt_write_kv_args* args);

/* ---- Plan: one step's schedule --------------------------------------------------------------- */

/* B requests with T = query_start[B] query tokens, packed request after request. Of row b of the
 * page table only the first ceil(kv_len[b] / page_size) entries are read. */
typedef struct rapt_batch {
  size_t struct_size;
  int64_t num_requests;       /* B >= 0 */
  const int32_t* query_start; /* [B + 1], from 0, nondecreasing */
  const int32_t* kv_len;      /* [B], tokens cached for the request, this step's included */
  const DLTensor* page_table; /* paged: int32 [B, width]; rows may be strided. NULL when ragged */
  int64_t num_pages;          /* paged: pages in the pool, the bound of page ids */
  const int32_t* kv_start;    /* ragged: [B + 1]; request b's keys are rows
                                 [kv_start[b], kv_start[b] + kv_len[b]) of k and v. Else NULL */
} rapt_batch;

typedef struct rapt_plan rapt_plan;

/* Microseconds on the host. The plan views the page table's memory, which must stay as it is until
 * the last run, but for a host's table with a GPU; it copies the rest of the batch. Immutable until
 * rapt_replan. With a GPU it must live until the work of its last run is done. */
RAPT_API rapt_status rapt_plan_create(const rapt_attention* attention, const rapt_batch* batch,
                                      rapt_plan** plan);
/* The same into an existing plan, whose memory is reused. No run of it may be under way. On error
 * it is left as it was, or empty of work. */
RAPT_API rapt_status rapt_replan(rapt_plan* plan, const rapt_batch* batch);
RAPT_API void rapt_plan_destroy(rapt_plan* plan);

/* What the batches of a plan may have at most whose runs a CUDA graph captures: once, to compute
 * whatever batch the plan has when the graph is launched. A run costs what the envelope may take.
 */
typedef struct rapt_graph_envelope {
  size_t struct_size;
  int32_t max_requests;  /* 1 to 2^24 */
  int32_t max_tokens;    /* query tokens of all requests: the rows of q, out and lse of a run */
  int32_t max_query_len; /* of one request; 0 = max_tokens; 1 = single-token decoding */
  int32_t max_kv_len;    /* of one request */
  int64_t num_pages;     /* paged: pages in the pool; the k and v of a run have as many. Else 0 */
  const DLTensor* page_table; /* paged: int32 [max_requests, width] on the device, that of every
                                 batch; NULL = each batch has one on the host, which is copied */
  int64_t max_kv_rows;        /* ragged: kv_start[B], and the rows of k and v of a run. Else 0 */
} rapt_graph_envelope;

/* A plan of no batch, to be captured with rapt_run after this: the plan's memory, the page table
 * and all that a run is given stay where they are while the graph may be launched. Allocates, loads
 * kernels, and clears on the stream, which is not captured, what they read. RAPT_UNSUPPORTED unless
 * the selection's graph is at least RAPT_GRAPH_SINGLE_TOKEN_DECODE where max_query_len is 1, else
 * RAPT_GRAPH_ALWAYS. */
RAPT_API rapt_status rapt_graph_plan_create(const rapt_attention* attention,
                                            const rapt_graph_envelope* envelope, void* stream,
                                            rapt_plan** plan);
/* Makes such a plan one of this batch, by copies on the stream: for what is launched there after
 * them, while what is on the stream before may still run. Launches on other streams are the
 * caller's to order. Never waits. On error nothing has changed: for a batch outside the envelope,
 * whose every number is named beside its bound, for a stream that is captured, and where the last
 * two batches are not copied yet. */
RAPT_API rapt_status rapt_graph_replan(rapt_plan* plan, const rapt_batch* batch, void* stream);
/* Bytes of the custom_mask that runs of such a plan take; a batch's own bits are the first. */
RAPT_API rapt_status rapt_graph_custom_mask_bytes(const rapt_graph_envelope* envelope,
                                                  int64_t* bytes);

/* Exactly what rapt_run needs; 0 when it needs none. */
RAPT_API rapt_status rapt_plan_workspace_bytes(const rapt_plan* plan, size_t* bytes);
/* T; of a graph envelope's plan max_tokens. */
RAPT_API rapt_status rapt_plan_num_tokens(const rapt_plan* plan, int64_t* num_tokens);
/* One line about requests, work and workspace; text, text_bytes, length as in
 * rapt_attention_explain. */
RAPT_API rapt_status rapt_plan_describe(const rapt_plan* plan, char* text, size_t text_bytes,
                                        size_t* length);
/* Bytes of the packed custom mask of a batch: request b's bits follow those of request b - 1
 * without padding; bit (i, j) of a request is number i * kv_len + j of its own; bit n of the whole
 * is bit n % 8, least significant first, of byte n / 8. */
RAPT_API rapt_status rapt_custom_mask_bytes(const rapt_batch* batch, int64_t* bytes);

/* Required alignment of a workspace. */
#define RAPT_WORKSPACE_ALIGNMENT 64

/* Tensors of one layer. A tensor that the spec does not ask for must be NULL. */
typedef struct rapt_run_args {
  size_t struct_size;
  const DLTensor* q;   /* [T, Hq, Dqk] of spec.dtype */
  const DLTensor* k;   /* paged: [num_pages, page_size, Hkv, Dqk]; ragged: [Tk, Hkv, Dqk] */
  const DLTensor* v;   /* the same with Dvo */
  const DLTensor* out; /* written: [T, Hq, Dvo] of spec.dtype, the plan's T tokens only */
  const DLTensor* lse; /* written: float32 [Hq, T], natural logarithm; iff needs_lse */
  const DLTensor* alibi_slopes; /* float32 [Hq]; iff alibi */
  const DLTensor* sinks;        /* float32 [Hq]; iff sinks. -inf: none, +inf: out 0, lse +inf */
  const DLTensor* custom_mask;  /* uint8 [rapt_custom_mask_bytes], or of the plan's envelope
                                   [rapt_graph_custom_mask_bytes]; iff custom_mask */
  const DLTensor* k_scale;      /* float32 [1] or [Hkv]; iff kv_scales is per tensor or per head */
  const DLTensor* v_scale;      /* like k_scale */
  void* workspace;              /* 64-byte aligned, any contents; NULL if 0 bytes are needed */
  size_t workspace_bytes;       /* at least rapt_plan_workspace_bytes */
  void* stream;                 /* CUDA stream; unused on the CPU */
} rapt_run_args;

/* Attention of the plan's batch, with the rapt_attention the plan was made by. Several threads may
 * run one plan at once, each with its own out, lse and workspace. */
RAPT_API rapt_status rapt_run(const rapt_plan* plan, const rapt_run_args* args);

/* ---- Merge of partial states ----------------------------------------------------------------- */

typedef struct rapt_merge_args {
  size_t struct_size;
  size_t num_states;           /* N >= 1 */
  const DLTensor* const* outs; /* N of [T, H, D], all of one dtype: float32, float16 or bfloat16 */
  const DLTensor* const* lses; /* N of float32 [H, T]; -inf or +inf marks a state without keys */
  const DLTensor* out;         /* written: [T, H, D], any of those dtypes; may be one of outs */
  const DLTensor* lse;         /* written: float32 [H, T]; NULL, or one of lses, or another */
  void* stream;
} rapt_merge_args;

/* Attentions of the same rows over disjoint keys, made one by their log-sum-exp, on the context's
 * device; on a GPU num_states is at most 64. */
RAPT_API rapt_status rapt_merge(rapt_context* context, const rapt_merge_args* args);

/* ---- KV-cache geometry ----------------------------------------------------------------------- */

/* Logical shape of a pool; D stands for a row of the cache's format. */
typedef int32_t rapt_kv_shape;
enum {
  RAPT_KV_PAGES_KV = 0, /* (num_pages, 2, page_size, Hkv, D): K and V of a page are neighbours */
  RAPT_KV_KV_PAGES = 1, /* (2, num_pages, page_size, Hkv, D): all K, then all V */
  RAPT_KV_PACKED = 2    /* (num_pages, Hkv, page_size, Dqk + Dvo): a token's K row then its V row */
};

typedef struct rapt_kv_cache_geometry {
  size_t struct_size;
  rapt_kv_shape shape;
  rapt_kv_layout layout;
  int64_t num_pages;
  int32_t page_size; /* tokens per page, >= 1 */
  int32_t num_kv_heads;
  int32_t head_dim_qk;
  int32_t head_dim_vo;   /* 0 = head_dim_qk; other values need RAPT_KV_PACKED */
  rapt_kv_format format; /* not RAPT_KV_AUTO */
  int32_t num_layers;    /* 0 = no layer axis; otherwise layers interleave within a page's block */
} rapt_kv_cache_geometry;

/* The geometry of a pool of num_pages pages for that spec, format resolved. */
RAPT_API rapt_status rapt_kv_cache_geometry_of(const rapt_attention_spec* spec, int64_t num_pages,
                                               rapt_kv_shape shape, rapt_kv_layout layout,
                                               int32_t num_layers,
                                               rapt_kv_cache_geometry* geometry);
/* Bytes of the pool, to be allocated by the caller, any contents. */
RAPT_API rapt_status rapt_kv_cache_total_bytes(const rapt_kv_cache_geometry* geometry,
                                               int64_t* bytes);
/* Bytes of one page of one layer, K and V. */
RAPT_API rapt_status rapt_kv_cache_page_bytes(const rapt_kv_cache_geometry* geometry,
                                              int64_t* bytes);

/* Axes of the logical shape, the layer axis (if any) first: at most this many. */
#define RAPT_KV_MAX_AXES 6
/* Sizes of the logical axes, and the axes in physical order, slowest first. */
RAPT_API rapt_status rapt_kv_cache_axes(const rapt_kv_cache_geometry* geometry, int32_t* num_axes,
                                        int64_t sizes[RAPT_KV_MAX_AXES],
                                        int32_t stride_order[RAPT_KV_MAX_AXES]);

/* int64_t entries that the shapes and strides of K and V take together. */
#define RAPT_KV_VIEW_INTS 16
/* K and V of a layer in the pool at `base`: [num_pages, page_size, Hkv, D] each. `layer` is 0
 * without a layer axis. Shapes and strides of both are put into `ints`, which must live as long as
 * *k and *v are used. */
RAPT_API rapt_status rapt_kv_cache_view(const rapt_kv_cache_geometry* geometry, void* base,
                                        int32_t layer, DLDevice device, DLTensor* k, DLTensor* v,
                                        int64_t ints[RAPT_KV_VIEW_INTS]);

/* Kernel pages of manager pages: manager page b with ratio r is kernel pages b*r .. b*r + r - 1.
 * kernel_pages holds ratio * num_manager_pages entries. Negative (unused) entries stay negative. */
RAPT_API rapt_status rapt_expand_pages(const int32_t* manager_pages, size_t num_manager_pages,
                                       int32_t ratio, int32_t* kernel_pages);
/* slot = page * page_size + offset of token position `position`, through the request's pages.
 * RAPT_INVALID_ARGUMENT where they have none for it, an unused (negative) entry included. */
RAPT_API rapt_status rapt_slot_of(const int32_t* pages, size_t num_pages, int32_t page_size,
                                  int64_t position, int64_t* slot);

/* ---- Page allocator -------------------------------------------------------------------------- */

/* Hands the pages of a cache to requests ("sequences") and shares full pages between requests with
 * the same prefix. Bookkeeping only: it never touches the pool. One thread at a time. */
typedef struct rapt_page_allocator rapt_page_allocator;

/* Pages 0 .. num_pages - 1; with reserve_null_page (0/1), page 0 is never handed out. */
RAPT_API rapt_status rapt_page_allocator_create(int64_t num_pages, int32_t page_size,
                                                int32_t reserve_null_page,
                                                rapt_page_allocator** allocator);
RAPT_API void rapt_page_allocator_destroy(rapt_page_allocator* allocator);

/* Starts a sequence on the pages of the longest cached prefix of tokens[0, num_tokens), never all
 * of them: at least the last token is left to compute. Ids are not reused. */
RAPT_API rapt_status rapt_page_allocator_begin(rapt_page_allocator* allocator,
                                               const int32_t* tokens, size_t num_tokens,
                                               int64_t* sequence);
/* Room for num_tokens more. All or nothing: OUT_OF_MEMORY says how many pages are needed and free.
 */
RAPT_API rapt_status rapt_page_allocator_reserve(rapt_page_allocator* allocator, int64_t sequence,
                                                 int64_t num_tokens);
/* *can is 1 if rapt_page_allocator_reserve would succeed now, else 0. */
RAPT_API rapt_status rapt_page_allocator_can_reserve(const rapt_page_allocator* allocator,
                                                     int64_t sequence, int64_t num_tokens,
                                                     int32_t* can);
/* Records the sequence's next tokens as written, in reserved room. */
RAPT_API rapt_status rapt_page_allocator_append(rapt_page_allocator* allocator, int64_t sequence,
                                                const int32_t* tokens, size_t num_tokens);
/* A second sequence on the same tokens. Full pages are shared; of a partly filled last page the
 * caller must copy the contents from page *copy_from to page *copy_to (both -1: nothing to copy).
 */
RAPT_API rapt_status rapt_page_allocator_fork(rapt_page_allocator* allocator, int64_t sequence,
                                              int64_t* fork, int32_t* copy_from, int32_t* copy_to);
/* Gives the pages back; full ones stay findable until they are evicted. */
RAPT_API rapt_status rapt_page_allocator_end(rapt_page_allocator* allocator, int64_t sequence);
/* The sequence's pages in token order, owned by the allocator, valid until the next call that
 * changes this sequence. */
RAPT_API rapt_status rapt_page_allocator_pages(const rapt_page_allocator* allocator,
                                               int64_t sequence, const int32_t** pages,
                                               size_t* num_pages);
/* Tokens recorded, and how many of them were found in the cache by begin. Either may be NULL. */
RAPT_API rapt_status rapt_page_allocator_tokens(const rapt_page_allocator* allocator,
                                                int64_t sequence, int64_t* num_tokens,
                                                int64_t* num_cached_tokens);

typedef struct rapt_page_allocator_stats {
  size_t struct_size;
  int64_t num_pages;
  int64_t num_free_pages;   /* free now or by eviction */
  int64_t num_used_pages;   /* held by at least one sequence */
  int64_t num_shared_pages; /* held by two or more */
} rapt_page_allocator_stats;

RAPT_API rapt_status rapt_page_allocator_get_stats(const rapt_page_allocator* allocator,
                                                   rapt_page_allocator_stats* stats);

/* ---- Sampling -------------------------------------------------------------------------------- */

/* Outcome of one row. */
typedef int32_t rapt_sample_status;
enum {
  RAPT_SAMPLE_OK = 0,
  RAPT_SAMPLE_NAN = 1,         /* the row has a NaN: token -1 */
  RAPT_SAMPLE_NOTHING_LEFT = 2 /* no token can be drawn: token -1 */
};

/* Order: temperature, top-k, top-p, min-p, renormalised after each. Arrays have one entry per row
 * of logits; NULL stands for the default in every row. */
typedef struct rapt_sample_args {
  size_t struct_size;
  const DLTensor* logits;       /* [rows, vocabulary], float32, float16 or bfloat16 */
  const float* temperature;     /* 0 = arg-max; NULL = 1 */
  const int32_t* top_k;         /* <= 0 or >= vocabulary = off; NULL = off */
  const float* top_p;           /* >= 1 = off; <= 0 keeps the arg-max; NULL = off */
  const float* min_p;           /* <= 0 = off; NULL = off */
  const uint64_t* seed;         /* with offset: the key of the row's random stream; NULL = 0 */
  const uint64_t* offset;       /* the draw's number within the stream; NULL = 0 */
  int32_t* tokens;              /* written: [rows] */
  rapt_sample_status* statuses; /* written: [rows] */
} rapt_sample_args;

/* A row gives the same token alone or in any batch; a bad row does not affect the others. */
RAPT_API rapt_status rapt_sample(rapt_context* context, const rapt_sample_args* args);

#ifdef __cplusplus
}
#endif

#endif
