#include "problem/run_args.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/check.hpp"
#include "core/strides.hpp"

namespace rapt {

// So that check() can be given the tensor, which is described on failure only: a run makes dozens
// of checks. In no unnamed namespace, where check() would not find it.
static std::ostream& operator<<(std::ostream& text, const TensorView& tensor) {
  return text << tensor.describe();
}

namespace {

constexpr int64_t kAny = -1;  // an axis whose size is checked elsewhere

std::string to_string(const Device& device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : concat("cuda:", device.index);
}

// All memory of the host is one.
bool is_on(const TensorView& tensor, const Device& device) {
  return tensor.device.kind == device.kind &&
         (device.kind == DeviceKind::kCpu || tensor.device.index == device.index);
}

// Emulated GPUs are CUDA devices too, and their memory is only what they gave out.
const char* remedy(const Device& wanted) {
  return wanted.kind == DeviceKind::kCpu
             ? ": copy the tensor to the host, or use a context of its device"
             : ": a tensor lies in memory of the context's device, such as a device buffer's, and "
               "names that device, as the context's tensor_device() gives it (in C, "
               "rapt_device_buffer_info.device)";
}

// Shape, dtype, device, element alignment, a contiguous last axis, and that no element's offset
// overflows.
void check_tensor(const char* name, const TensorView& tensor, DType dtype,
                  std::initializer_list<int64_t> shape, const Device& device) {
  check(tensor.has_value(), name, " is missing");
  check(tensor.rank <= TensorView::kMaxRank, name, " has rank ", tensor.rank, ": at most ",
        static_cast<int>(TensorView::kMaxRank), " axes");
  check(tensor.dtype == dtype, name, " is ", rapt::to_string(tensor.dtype), ": must be ",
        rapt::to_string(dtype));
  check(tensor.rank == std::ssize(shape), name, " is ", tensor, ": must have ", shape.size(),
        " axes");
  int64_t axis = 0;
  bool empty = false;
  for (int64_t size : shape) {
    check(tensor.shape[axis] >= 0, name, " is ", tensor, ": a size is negative");
    check(size == kAny || tensor.shape[axis] == size, name, " is ", tensor, ": axis ", axis,
          " must be ", size);
    empty |= tensor.shape[axis] == 0;
    axis++;
  }
  if (!is_on(tensor, device)) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, name, " is on ", to_string(tensor.device),
         ": this backend runs on ", to_string(device), remedy(device));
  if (empty) return;
  const int32_t last = tensor.rank - 1;
  check(tensor.shape[last] == 1 || tensor.stride[last] == 1, name, " is ", tensor,
        ": the last axis must be contiguous");
  check(tensor.data != nullptr, name, " is ", tensor, " without data");
  check(reinterpret_cast<uintptr_t>(tensor.data) % size_of(dtype) == 0, name, " is at ",
        tensor.data, ": must be aligned to its ", size_of(dtype), "-byte elements");
  int64_t reach = 0;
  for (int32_t i = 0; i < tensor.rank; i++)
    if (tensor.shape[i] > 1)
      reach = checked_add(reach,
                          std::max(checked_mul(tensor.shape[i] - 1, tensor.stride[i], name),
                                   checked_mul(1 - tensor.shape[i], tensor.stride[i], name)),
                          name);
  checked_mul(reach, static_cast<int64_t>(size_of(dtype)), name);
}

// Two elements of an output must not share memory: from the smallest stride up, each axis steps
// over all that the ones before it reach.
void check_output(const char* name, const TensorView& tensor) {
  auto step = [&](int32_t axis) { return std::abs(tensor.stride[axis]); };
  std::array<int32_t, TensorView::kMaxRank> axes{};  // with more than one entry, by their steps
  int32_t num_axes = 0;
  for (int32_t i = 0; i < tensor.rank; i++) {
    if (tensor.shape[i] == 0) return;
    if (tensor.shape[i] == 1) continue;
    int32_t at = num_axes++;
    for (; at > 0 && step(axes[at - 1]) > step(i); at--) axes[at] = axes[at - 1];
    axes[at] = i;
  }
  int64_t reach = 0;  // check_tensor() has seen that the sum fits
  for (int32_t i = 0; i < num_axes; i++) {
    check(step(axes[i]) > reach, name, " is ", tensor, ": axis ", axes[i], " steps over ",
          step(axes[i]), " elements where ", reach + 1,
          " lie; elements of an output must not overlap");
    reach += (tensor.shape[axes[i]] - 1) * step(axes[i]);
  }
}

// Given if and only if the spec asks for it: an option is honoured or refused, never dropped.
bool check_presence(const char* name, const TensorView& tensor, bool asked, const char* option) {
  check(tensor.has_value() || !asked, name, " is missing, but the spec has ", option);
  check(!tensor.has_value() || asked, name, " is given, but the spec does not have ", option,
        ": set it there, so that a backend that honours it is chosen");
  return asked;
}

void check_scale(const char* name, const AttentionSpec& spec, const TensorView& scale,
                 const Device& device) {
  const bool in_cache = spec.kv_scales == KvScales::kPerTokenHead;
  check(!in_cache || !scale.has_value(), name,
        " is given, but per_token_head scales live in the cache: leave it empty");
  if (in_cache || !check_presence(name, scale, spec.kv_scales != KvScales::kNone, "kv_scales"))
    return;
  check_tensor(name, scale, DType::kFloat32,
               {spec.kv_scales == KvScales::kPerTensor ? 1 : spec.num_kv_heads}, device);
}

DType cache_dtype(const AttentionSpec& spec) {
  return storage_dtype(spec.cache_format()).value_or(DType::kUInt8);
}

// Of a cache write with that many slots.
void check_rope(const AttentionSpec& spec, const RopeArgs& rope, int64_t num_slots,
                const Device& device) {
  const DType index = rope.positions.dtype;
  check(index == DType::kInt32 || index == DType::kInt64, "rope.positions is ",
        rapt::to_string(index), ": must be int32 or int64");
  check_tensor("rope.positions", rope.positions, index, {kAny}, device);
  check(rope.positions.shape[0] >= num_slots, "rope.positions is ", rope.positions,
        ": slot_mapping has ", num_slots, " entries");
  check_tensor("rope.cos_sin", rope.cos_sin, DType::kFloat32, {kAny, kAny}, device);
  const int64_t rotary_dim = rope.cos_sin.shape[1];
  check(rotary_dim >= 2 && rotary_dim <= spec.head_dim_qk && rotary_dim % 2 == 0,
        "rope.cos_sin is ", rope.cos_sin, ": axis 1, rotary_dim, must be even and from 2 to ",
        spec.head_dim_qk, ", head_dim_qk");
  check(rope.q.has_value() == rope.q_out.has_value(), "rope.", rope.q.has_value() ? "q_out" : "q",
        " is missing: give both to rotate queries, or neither");
  if (!rope.q.has_value()) return;
  check_tensor("rope.q", rope.q, spec.dtype, {kAny, spec.num_query_heads, spec.head_dim_qk},
               device);
  check_tensor("rope.q_out", rope.q_out, spec.dtype, {kAny, spec.num_query_heads, spec.head_dim_qk},
               device);
  check_output("rope.q_out", rope.q_out);
  check(rope.q.shape[0] >= num_slots && rope.q_out.shape[0] >= num_slots, "rope.q is ", rope.q,
        " and rope.q_out is ", rope.q_out, ": slot_mapping has ", num_slots, " entries");
  check(rope.q.data != rope.q_out.data || num_slots == 0 ||
            (stride_of(rope.q, 0) == stride_of(rope.q_out, 0) &&
             stride_of(rope.q, 1) == stride_of(rope.q_out, 1)),
        "rope.q is ", rope.q, " and rope.q_out, at the same place, ", rope.q_out,
        ": must be the same, or lie apart");
}

// On the host, after both were checked.
void check_positions(const RopeArgs& rope, const int64_t* slots, int64_t num_slots) {
  const bool wide = rope.positions.dtype == DType::kInt64;
  for (int64_t i = 0; i < num_slots; i++) {
    if (slots[i] < 0 && !rope.q.has_value()) continue;
    const int64_t position = wide ? static_cast<const int64_t*>(rope.positions.data)[i]
                                  : static_cast<const int32_t*>(rope.positions.data)[i];
    check(position >= 0 && position < rope.cos_sin.shape[0], "rope.positions[", i, "] is ",
          position, ": cos_sin has rows 0 to ", rope.cos_sin.shape[0] - 1);
  }
}

}  // namespace

void validate(const AttentionSpec& spec, const BatchShape& shape, const RunArgs& args,
              const Device& device) {
  const int64_t num_query_heads = spec.num_query_heads, num_kv_heads = spec.num_kv_heads;
  check_tensor("q", args.q, spec.dtype, {kAny, num_query_heads, spec.head_dim_qk}, device);
  check(args.q.shape[0] >= shape.num_tokens, "q is ", args.q, ": the plan has ", shape.num_tokens,
        " tokens");
  if (spec.is_paged()) {
    const DType dtype = cache_dtype(spec);
    check_tensor("k", args.k, dtype, {kAny, spec.page_size, num_kv_heads, spec.head_dim_qk},
                 device);
    check_tensor("v", args.v, dtype, {kAny, spec.page_size, num_kv_heads, spec.dim_vo()}, device);
    check(args.k.shape[0] >= shape.num_pages && args.v.shape[0] >= shape.num_pages, "k is ", args.k,
          " and v is ", args.v, ": the plan's pool has ", shape.num_pages, " pages");
  } else {
    check_tensor("k", args.k, spec.dtype, {kAny, num_kv_heads, spec.head_dim_qk}, device);
    check_tensor("v", args.v, spec.dtype, {kAny, num_kv_heads, spec.dim_vo()}, device);
    check(args.k.shape[0] >= shape.num_kv_rows && args.v.shape[0] >= shape.num_kv_rows, "k is ",
          args.k, " and v is ", args.v, ": kv_start ends at ", shape.num_kv_rows);
  }
  check_tensor("out", args.out, spec.dtype, {kAny, num_query_heads, spec.dim_vo()}, device);
  check_output("out", args.out);
  check(args.out.shape[0] >= shape.num_tokens, "out is ", args.out, ": the plan has ",
        shape.num_tokens, " tokens");
  if (check_presence("lse", args.lse, spec.needs_lse, "needs_lse")) {
    check_tensor("lse", args.lse, DType::kFloat32, {num_query_heads, kAny}, device);
    check_output("lse", args.lse);
    check(args.lse.shape[1] >= shape.num_tokens, "lse is ", args.lse, ": the plan has ",
          shape.num_tokens, " tokens");
  }
  if (check_presence("alibi_slopes", args.alibi_slopes, spec.alibi, "alibi"))
    check_tensor("alibi_slopes", args.alibi_slopes, DType::kFloat32, {num_query_heads}, device);
  if (check_presence("sinks", args.sinks, spec.sinks, "sinks"))
    check_tensor("sinks", args.sinks, DType::kFloat32, {num_query_heads}, device);
  if (check_presence("custom_mask", args.custom_mask, spec.custom_mask, "custom_mask")) {
    check_tensor("custom_mask", args.custom_mask, DType::kUInt8, {kAny}, device);
    check(args.custom_mask.shape[0] == shape.custom_mask_bytes, "custom_mask has ",
          args.custom_mask.shape[0], " bytes: the batch takes ", shape.custom_mask_bytes,
          ", one bit for every (query, key) of every request, packed");
  }
  check_scale("k_scale", spec, args.k_scale, device);
  check_scale("v_scale", spec, args.v_scale, device);
  check(args.workspace.bytes >= shape.workspace_bytes, "workspace has ", args.workspace.bytes,
        " bytes: the plan needs ", shape.workspace_bytes,
        ", as its workspace_bytes() says (in C, rapt_plan_workspace_bytes)");
  check(shape.workspace_bytes == 0 || args.workspace.data != nullptr,
        "workspace has no data: the plan needs ", shape.workspace_bytes, " bytes");
  check(shape.workspace_bytes == 0 ||
            reinterpret_cast<uintptr_t>(args.workspace.data) % kWorkspaceAlignment == 0,
        "workspace is at ", args.workspace.data, ": must be aligned to ", kWorkspaceAlignment,
        " bytes");
}

void validate(const AttentionSpec& spec, const WriteKvArgs& args, const Device& device) {
  check(spec.is_paged(), "write_kv: the spec has page_size 0, so there is no cache to write");
  const DType dtype = cache_dtype(spec);
  check_tensor("slot_mapping", args.slot_mapping, DType::kInt64, {kAny}, device);
  const int64_t num_slots = args.slot_mapping.shape[0];
  check_tensor("k", args.k, spec.dtype, {kAny, spec.num_kv_heads, spec.head_dim_qk}, device);
  check_tensor("v", args.v, spec.dtype, {kAny, spec.num_kv_heads, spec.dim_vo()}, device);
  check(args.k.shape[0] >= num_slots && args.v.shape[0] >= num_slots, "k is ", args.k, " and v is ",
        args.v, ": slot_mapping has ", num_slots, " entries");
  check_tensor("cache.k", args.cache.k, dtype,
               {kAny, spec.page_size, spec.num_kv_heads, spec.head_dim_qk}, device);
  check_tensor("cache.v", args.cache.v, dtype,
               {args.cache.k.shape[0], spec.page_size, spec.num_kv_heads, spec.dim_vo()}, device);
  check_output("cache.k", args.cache.k);
  check_output("cache.v", args.cache.v);
  check_scale("k_scale", spec, args.k_scale, device);
  check_scale("v_scale", spec, args.v_scale, device);
  if (args.rope) check_rope(spec, *args.rope, num_slots, device);
  if (device.kind != DeviceKind::kCpu || num_slots == 0) return;
  const int64_t limit = checked_mul(args.cache.k.shape[0], spec.page_size, "cache slots");
  const int64_t* slots = static_cast<const int64_t*>(args.slot_mapping.data);
  for (int64_t i = 0; i < num_slots; i++)
    check(slots[i] < limit, "slot_mapping[", i, "] is ", slots[i], ": the cache has slots 0 to ",
          limit - 1);
  if (args.rope) check_positions(*args.rope, slots, num_slots);
}

void validate(const MergeArgs& args, const Device& device) {
  check(!args.outs.empty(), "merge: no states are given");
  check(args.outs.size() == args.lses.size(), "merge: ", args.outs.size(), " outs and ",
        args.lses.size(), " lses: must be as many");
  auto is_float = [](DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  };
  check(is_float(args.out.dtype) && is_float(args.outs[0].dtype), "merge: outs are ",
        rapt::to_string(args.outs[0].dtype), " and out is ", rapt::to_string(args.out.dtype),
        ": must be float32, float16 or bfloat16");
  check_tensor("out", args.out, args.out.dtype, {kAny, kAny, kAny}, device);
  check_output("out", args.out);
  const int64_t tokens = args.out.shape[0], heads = args.out.shape[1], dim = args.out.shape[2];
  for (const TensorView& out : args.outs)
    check_tensor("outs", out, args.outs[0].dtype, {tokens, heads, dim}, device);
  for (const TensorView& lse : args.lses)
    check_tensor("lses", lse, DType::kFloat32, {heads, tokens}, device);
  if (!args.lse.has_value()) return;
  check_tensor("lse", args.lse, DType::kFloat32, {heads, tokens}, device);
  check_output("lse", args.lse);
}

}  // namespace rapt
