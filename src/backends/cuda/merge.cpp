// merge() on a GPU.
#include <limits>

#include "backends/cuda/cuda_gpu.hpp"
#include "backends/cuda/row_alignment.hpp"
#include "core/check.hpp"
#include "kernels/abi/merge.hpp"

namespace rapt {
namespace {

using device::MergeStatesParams;

MergeStatesParams params_of(const MergeArgs& args) {
  MergeStatesParams params{};
  const auto num_states = static_cast<int>(args.outs.size());
  int64_t alignment = device::kMergePieceBytes;
  const auto look_at = [&](const TensorView& tensor) {
    alignment = row_alignment(tensor, alignment);
  };
  for (int s = 0; s < num_states; s++) {
    const TensorView &out = args.outs[s], &lse = args.lses[s];
    params.states[s] = {.out = static_cast<const unsigned char*>(out.data),
                        .lse = static_cast<const float*>(lse.data),
                        .out_token_stride = byte_stride(out, 0),
                        .out_head_stride = byte_stride(out, 1),
                        .lse_head_stride = stride_of(lse, 0),
                        .lse_token_stride = stride_of(lse, 1)};
    look_at(out);
  }
  look_at(args.out);
  params.num_states = num_states;
  params.num_tokens = static_cast<int>(args.out.shape[0]);
  params.num_heads = static_cast<int>(args.out.shape[1]);
  params.head_dim = static_cast<int>(args.out.shape[2]);
  const auto are = [&](int elems, int64_t bytes) {
    return params.head_dim % elems == 0 && alignment >= bytes;
  };
  const int wide = device::kMergePieceBytes / static_cast<int>(size_of(args.outs[0].dtype));
  const int elems = are(wide, device::kMergePieceBytes) ? wide : are(2, 4) ? 2 : 1;
  params.tiles = device::merge_tiles(elems, num_states, params.head_dim);
  params.out = static_cast<unsigned char*>(args.out.data);
  params.out_token_stride = byte_stride(args.out, 0);
  params.out_head_stride = byte_stride(args.out, 1);
  if (args.lse.has_value()) {
    params.lse = static_cast<float*>(args.lse.data);
    params.lse_head_stride = stride_of(args.lse, 0);
    params.lse_token_stride = stride_of(args.lse, 1);
  }
  return params;
}

// Whether the kernel begins before the one before it has ended, and waits for that: two
// microseconds of a launch, in which it gets its parameters.
bool overlaps_previous(jit::Architecture architecture) {
  return architecture.number >= 90;
}

}  // namespace

KernelText merge_states_text(DType from, DType to, jit::Architecture architecture) {
  return {jit::KernelKey("merge_states", architecture)
              .type("from", element_of(from))
              .type("to", element_of(to)),
          {.header = "merge/merge_states.cuh",
           .function = "rapt_merge_states",
           .entry = concat("extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * kMergeWarps, "
                           "kMergeBlocks) rapt_merge_states(GRID_CONSTANT const "
                           "MergeStatesParams params) {\n",
                           overlaps_previous(architecture) ? "  wait_for_previous_kernel();\n" : "",
                           "  merge_states<key::from, key::to>(params);\n}"),
           .agreements = {same_size<MergeStatesParams>("MergeStatesParams"),
                          {"kMergeWarps", device::kMergeWarps}}}};
}

void CudaGpu::merge(const MergeArgs& args) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max(), kMostElems = 1 << 28;
  const DType from = args.outs[0].dtype, to = args.out.dtype;
  check(args.outs.size() <= device::kMaxMergeStates, "merge: ", args.outs.size(),
        " states, at most ", device::kMaxMergeStates, " on a GPU: merge some of them first");
  const int64_t tokens = args.out.shape[0], heads = args.out.shape[1];
  check(checked_mul(tokens, heads, "merge: rows") <= kMostRows, "merge: ", tokens, " tokens of ",
        heads, " heads, at most 2^31 - 1 rows on a GPU: merge some tokens after the others");
  check(args.out.shape[2] <= kMostElems, "merge: heads of ", args.out.shape[2],
        " elements, at most 2^28 on a GPU");
  if (tokens * heads == 0) return;
  const auto index_of = [](DType dtype) {
    return dtype == DType::kFloat32 ? 0 : dtype == DType::kFloat16 ? 1 : 2;
  };
  const cuda::Kernel& kernel = merge_kernels_[index_of(from)][index_of(to)].get(
      kernels_, [&] { return merge_states_text(from, to, architecture()); });
  const MergeStatesParams params = params_of(args);
  const cuda::CurrentContext current(context_);
  const cuda::Stream stream = stream_of(args.stream);
  cuda::check_stream(context_, stream);
  cuda::launch(kernel,
               {.grid = {static_cast<uint32_t>(
                    device::merge_blocks(params.tiles, params.num_tokens, params.num_heads))},
                .block = {32 * device::kMergeWarps},
                .overlaps_previous = overlaps_previous(architecture())},
               stream, params);
}

}  // namespace rapt
