// The way of a call:
//
//   rapt::Context context;                     // once
//   rapt::Attention attention(context, spec);  // once per layer group: selects a backend
//   rapt::Plan plan = attention.plan(batch);   // once per step
//   // Once per layer:
//   attention.write_kv({.k = k, .v = v, .slot_mapping = slots, .cache = cache});
//   attention.run(plan, {.q = q, .k = cache.k, .v = cache.v, .out = out, .workspace = workspace});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rapt/batch.hpp"
#include "rapt/context.hpp"
#include "rapt/export.hpp"
#include "rapt/graph_envelope.hpp"
#include "rapt/kv_cache.hpp"
#include "rapt/select.hpp"
#include "rapt/spec.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// Scratch memory of one run, on the device that runs. Never needs clearing; may be reused by the
// next run on the same stream.
struct Workspace {
  void* data = nullptr;  // 64-byte aligned
  size_t bytes = 0;
};

constexpr size_t kWorkspaceAlignment = 64;

// A step's schedule: immutable, made from lengths alone. Several plans may be in flight.
//
// On the CPU it views the batch's page table, which must stay as it is until the last run; it owns
// everything else. On a GPU it views a page table that lies there, and copies one of the host's. It
// owns what its kernels read on the device, which the first run on a stream copies there; it must
// live until the work of its last run is done. A run that a graph captures is a run of the plan as
// it is: replan() does not reach it.
//
// But for the plan of a GraphEnvelope, whose runs are captured once and compute whatever batch the
// plan has when the graph is launched:
//
//   rapt::Plan plan = attention.plan(envelope, stream);  // once, before the capture
//   // Captured: attention.run(plan, args) for each layer, with workspace, tensors and page table
//   // that stay where they are.
//   attention.replan(plan, batch, stream);               // each step
//   // Launch the graph on the stream.
//
// What a replan copies to the device follows what is on its stream by then and comes before what is
// put there later, so that the host may plan a step while the one before it runs. Launches on other
// streams the program orders itself: after the replan, and before the next one.
class RAPT_API Plan {
 public:
  struct Impl;
  explicit Plan(std::unique_ptr<Impl> impl);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  size_t workspace_bytes() const;  // exactly what run() needs; 0 when it needs none
  int64_t num_tokens() const;      // T; of an envelope's plan max_tokens, which its runs' rows are
  // One line: requests, decode and prefill work, splits, partials, workspace.
  std::string describe() const;

  const Impl& impl() const { return *impl_; }

 private:
  friend class Attention;
  std::unique_ptr<Impl> impl_;
};

// Tensors of one layer's run. Outputs must not overlap inputs. Shapes: T query tokens, Hq query
// heads, Hkv KV heads.
//
// Numbers are finite, but for sinks, which may be infinite either way. They are not looked at
// first: a NaN or an infinity in a request's queries, or in keys and values that one of them sees,
// may make anything of that request's out and lse, and changes no other request's. What no query
// sees may hold anything.
//
// All backends but the reference keep q . k before it is scaled, scores and biases, times log2(e),
// and sums of weights times values in float (those on GPUs also scale * log2(e)): a request in
// which one of these passes its range counts as one with a NaN. Of |scale * k_scale| the cpu
// backend takes what lies outside 2^-100 to 2^100 into q, before q . k.
struct RunArgs {
  TensorView q{};  // [T, Hq, Dqk] of spec.dtype
  // Paged: [num_pages, page_size, Hkv, D] of the cache's format. Ragged: [Tk, Hkv, D] of
  // spec.dtype.
  TensorView k{};
  TensorView v{};
  TensorView out{};           // [T, Hq, Dvo] of spec.dtype; written for the batch's T tokens only
  TensorView lse{};           // fp32 [Hq, T], natural logarithm; required iff spec.needs_lse
  TensorView alibi_slopes{};  // fp32 [Hq]; required iff spec.alibi
  // fp32 [Hq]; required iff spec.sinks. -inf: no sink; +inf takes all the weight: out 0, lse +inf.
  TensorView sinks{};
  // uint8 [custom_mask_bytes(batch)], or of the plan's envelope; required iff spec.custom_mask
  TensorView custom_mask{};
  TensorView k_scale{};   // fp32 [1] per tensor, [Hkv] per head; required iff spec.kv_scales
  TensorView v_scale{};   // like k_scale
  Workspace workspace{};  // at least plan.workspace_bytes()
  // CUDA stream, of the context's device; null is the default one. Unused on the CPU.
  void* stream = nullptr;
};

// Which two elements of a row are a pair of rotary position embedding, rotary_dim / 2 of them:
// i and i + rotary_dim / 2, or 2i and 2i + 1.
enum class RopeStyle : uint8_t { kHalfSplit, kInterleaved };

// Rotary position embedding (Su et al. 2021, section 3.2) of keys on their way to the cache, and of
// the same tokens' queries. Pair (x, y) becomes (x cos - y sin, y cos + x sin), in fp32 and rounded
// once; elements from rotary_dim on stay as they are.
struct RopeArgs {
  // int32 or int64 [T'], T' >= the number of slots: each token's row of cos_sin. Those of tokens
  // that are not written count only where there is q. On the CPU they are checked, on a GPU with
  // ContextOptions::check_device_indices.
  TensorView positions{};
  // fp32 [max_position, rotary_dim]: of each pair's angle the cosine, then of each the sine;
  // rotary_dim is even and at most Dqk.
  TensorView cos_sin{};
  RopeStyle style = RopeStyle::kHalfSplit;
  // [T', Hq, Dqk] of spec.dtype, both or neither. A row for every slot is rotated, where the slot
  // is negative too. q_out may be q exactly, and must not overlap it otherwise.
  TensorView q{};
  TensorView q_out{};
};

struct WriteKvArgs {
  TensorView k{};  // [T', Hkv, Dqk] of spec.dtype, T' >= the number of slots
  TensorView v{};  // [T', Hkv, Dvo]
  // int64 [n]: page * page_size + offset; negative = do not write. On the CPU every slot is
  // checked; a GPU writes where they say, but with ContextOptions::check_device_indices.
  TensorView slot_mapping{};
  KvCacheView cache{};
  TensorView k_scale{};  // as in RunArgs: stored = value / scale
  TensorView v_scale{};
  std::optional<RopeArgs> rope{};  // k is stored rotated, and k itself stays as it is
  void* stream = nullptr;
};

// N partial states of the same rows, each an attention over its own keys. On a GPU N is at most 64.
struct MergeArgs {
  std::span<const TensorView> outs{};  // N of [T, H, D], all of one dtype: fp32, fp16 or bf16
  std::span<const TensorView> lses{};  // N of fp32 [H, T]; -inf, and +inf too, mark a state that
                                       // saw no key
  // [T, H, D], any of those dtypes; may be one of `outs` exactly, and must not overlap them
  // otherwise.
  TensorView out{};
  TensorView lse{};  // fp32 [H, T]; may be absent, or one of `lses`
  void* stream = nullptr;
};

// A spec bound to the backend chosen for it. Cheap to keep, one per layer group; const members may
// be called from several threads. The context must outlive it.
class RAPT_API Attention {
 public:
  // Throws as select() does. The context must outlive the object: its threads do the work.
  Attention(Context& context, const AttentionSpec& spec, const SelectOptions& options = {});
  ~Attention();
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;

  const AttentionSpec& spec() const;
  const Selection& selection() const;

  // Microseconds on the host; reads no device memory and never waits for one. On a GPU the first
  // plan that needs a kernel loads it, or compiles it where no pack and no cache has it.
  Plan plan(const Batch& batch) const;
  // The same into an existing plan of this object, whose memory is reused: no allocation once it
  // has had as large a batch, and one with as many kernels. The plan must not be in use: on a GPU
  // until the work of its last run is done. On error it is left as it was before the call, or empty
  // of work.
  void replan(Plan& plan, const Batch& batch) const;

  // A plan for runs that a CUDA graph captures: see Plan. It is of no batch at first: a run writes
  // nothing. Allocates, loads the kernels, and clears on the stream what they read. Throws
  // Error(kInvalidArgument) for numbers out of their bounds or a stream that is captured,
  // Error(kUnsupported) unless selection().graph is as much as max_query_len takes.
  Plan plan(const GraphEnvelope& envelope, void* stream) const;
  // Makes the plan of an envelope one of this batch for all that comes after on the stream: copies
  // to the device, where nothing moves. Allocates nothing once it has had such a batch, and never
  // waits. Throws, and changes nothing: Error(kInvalidArgument) that names every number of the
  // batch outside the envelope, beside its bound; or where the stream is captured; or where the
  // copies of the last two replans have not happened, for then the host is too far ahead.
  void replan(Plan& plan, const Batch& batch, void* stream) const;

  // Writes out[0, T) and, if asked for, lse. Throws before the first write. On a GPU: puts kernels
  // on the stream, allocates nothing and waits for nothing, unless the context checks indices.
  void run(const Plan& plan, const RunArgs& args) const;
  // Scatters this step's keys and values into the cache; with rope, keys rotated.
  void write_kv(const WriteKvArgs& args) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Merges partial states by their log-sum-exp (FlashAttention, Dao et al. 2022, section 3.1): the
// state that saw no key is the identity, bit for bit. Runs on the context's device, where all
// tensors must be.
RAPT_API void merge(Context& context, const MergeArgs& args);

}  // namespace rapt
