// The capability tables. "vLLM" stands for the attention layer of vLLM v0.25 and later as its code
// has it, "FlashInfer" for that library's 0.6 series; where documents and code disagree, the code
// counts.
#include <array>

#include "select/capability.hpp"

namespace rapt {
namespace {

using enum AttentionKind;

constexpr EnumSet<DType> kHalf{DType::kFloat16, DType::kBFloat16};
constexpr EnumSet<DType> kHalfAndFloat{DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr EnumSet<AttentionKind> kAllKinds{kDecoder, kEncoder, kEncoderOnly, kEncoderDecoder};
constexpr EnumSet<KvScales> kTensorOrHeadScales{KvScales::kNone, KvScales::kPerTensor,
                                                KvScales::kPerHead};
constexpr EnumSet<KvScales> kTensorScales{KvScales::kNone, KvScales::kPerTensor};

constexpr std::array<int32_t, 3> kPages16To64{16, 32, 64};
constexpr std::array<int32_t, 4> kPages16To128{16, 32, 64, 128};
constexpr std::array<int32_t, 7> kPages16To1024{16, 32, 64, 128, 256, 512, 1024};
constexpr std::array<int32_t, 3> kPages8To32{8, 16, 32};

constexpr std::array<int32_t, 4> kFlashInferHeadDims{64, 128, 256, 512};
constexpr std::array<int32_t, 3> kTrtLlmHeadDims{64, 128, 256};
constexpr std::array<int32_t, 1> kHeadDim256{256};
constexpr std::array<int32_t, 9> kPagedAttentionHeadDims{32, 64, 80, 96, 112, 120, 128, 192, 256};

constexpr std::array kFlash3Pairs{HeadDimPair{{129, 192}, {97, 128}},
                                  HeadDimPair{{1, 64}, {1, 512}}};
constexpr std::array k192And128{HeadDimPair{{192, 192}, {128, 128}}};
constexpr std::array kUpTo256{HeadDimPair{{1, 256}, {1, 256}}};
constexpr std::array kUpTo512{HeadDimPair{{1, 512}, {1, 512}}};
constexpr std::array kAnyPair{HeadDimPair{{1, kUnbounded}, {1, kUnbounded}}};

constexpr Capability kFlashAttention2{
    .backend = BackendId::kFlashAttention,
    .version = 2,
    .name = "FlashAttention 2",
    .source = "src/backends/flash_attention",
    .built = RAPT_CUDA,
    .compute_capability = {80, kUnbounded},
    .head_dims = {.multiple_of = 8, .equal = {8, 256}, .unequal = kUpTo256},
    .dtypes = kHalf,
    .page_sizes = {.multiple_of = 1},
    .ragged = true,
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kBothSides,
    .softcap = true,
    .alibi = true,
    .sinks = true,
    .custom_mask = true,
    .lse = true,
    .batch_invariant = true,
    .graph = GraphSupport::kAlways,
};

// Reads an FP8 cache with FP8 queries, which it is given quantised.
constexpr Capability kFlashAttention3{
    .backend = BackendId::kFlashAttention,
    .version = 3,
    .name = "FlashAttention 3",
    .source = "vLLM",
    .compute_capability = {90, 99},
    .head_dims = {.multiple_of = 8, .equal = {8, 256}, .unequal = kFlash3Pairs},
    .dtypes = kHalf,
    .quantised_kv = {KvFormat::kFp8E4M3},
    .kv_scales = kTensorOrHeadScales,
    .page_sizes = {.multiple_of = 16},
    .ragged = true,
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kBothSides,
    .softcap = true,
    .sinks = true,
    .lse = true,
    .batch_invariant = true,
    .context_parallel = ContextParallel::kAny,
    .graph = GraphSupport::kAlways,
};

constexpr Capability kFlashAttention4Hopper{
    .backend = BackendId::kFlashAttention,
    .version = 4,
    .name = "FlashAttention 4 (SM 9.x)",
    .source = "vLLM",
    .compute_capability = {90, 99},
    .head_dims = {.multiple_of = 8, .equal = {8, 512}, .unequal = k192And128},
    .dtypes = kHalf,
    .page_sizes = {.multiple_of = 16},
    .ragged = true,
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kBothSides,
    .softcap = true,
    .sinks = true,
    .lse = true,
    .context_parallel = ContextParallel::kAny,
    .graph = GraphSupport::kUniformBatch,
};

// Tensor memory (512 columns of an SM) holds two score tiles and two outputs of at most 128 values.
constexpr Capability kFlashAttention4Blackwell{
    .backend = BackendId::kFlashAttention,
    .version = 4,
    .name = "FlashAttention 4 (SM 10.x, 11.x)",
    .source = "vLLM",
    .compute_capability = {100, 119},
    .head_dims = {.multiple_of = 8, .equal = {8, 128}, .unequal = k192And128},
    .dtypes = kHalf,
    .page_sizes = {.multiple_of = 16},
    .ragged = true,
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kBothSides,
    .softcap = true,
    .sinks = true,
    .lse = true,
    .context_parallel = ContextParallel::kAny,
    .graph = GraphSupport::kUniformBatch,
};

// Its own kernel, with fewer options.
constexpr Capability kFlashAttention4Blackwell256{
    .backend = BackendId::kFlashAttention,
    .version = 4,
    .name = "FlashAttention 4 (SM 10.x, 11.x, head dim 256)",
    .source = "vLLM",
    .compute_capability = {100, 119},
    .head_dims = {.multiple_of = 8, .equal = {256, 256}, .listed = kHeadDim256},
    .dtypes = kHalf,
    .page_sizes = {.multiple_of = 128},
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kBothSides,
    .lse = true,
    .graph = GraphSupport::kUniformBatch,
};

// The TRT-LLM kernels; with a group of 1 they read small pages only.
constexpr Capability kFlashInferTrtLlm{
    .backend = BackendId::kFlashInfer,
    .name = "FlashInfer TRT-LLM",
    .source = "vLLM",
    .compute_capability = {100, 109},
    .group = {2, kUnbounded},
    .head_dims = {.listed = kTrtLlmHeadDims},
    .dtypes = kHalf,
    .quantised_kv = {KvFormat::kFp8E4M3, KvFormat::kNvfp4},
    .kv_scales = kTensorScales,
    .page_sizes = {.listed = kPages16To1024},
    .required_layout = KvLayout::kHND,
    .window = WindowSupport::kLeft,
    .sinks = true,
    .graph = GraphSupport::kUniformBatch,
};

constexpr Capability flashinfer_trtllm_without_groups() {
  Capability row = kFlashInferTrtLlm;
  row.name = "FlashInfer TRT-LLM (group 1)";
  row.group = {1, 1};
  row.page_sizes = {.listed = kPages16To64};
  return row;
}

// FlashInfer's own kernels can add ALiBi, but no wrapper of the paged path passes slopes on.
constexpr Capability kFlashInferNative{
    .backend = BackendId::kFlashInfer,
    .name = "FlashInfer native",
    .source = "vLLM, FlashInfer",
    .compute_capability = {80, 121},
    .head_dims = {.listed = kFlashInferHeadDims},
    .dtypes = kHalf,
    .quantised_kv = {KvFormat::kFp8E4M3, KvFormat::kFp8E5M2},
    .kv_scales = kTensorScales,
    .scales_unquantised_kv = true,
    .page_sizes = {.listed = kPages16To64},
    .ragged = true,
    .required_layout = KvLayout::kHND,
    .layout_required_on = {100, 109},
    .non_causal_decoder = true,
    .window = WindowSupport::kLeft,
    .softcap = true,
    .custom_mask = true,
    .lse = true,
    .batch_invariant = true,
    .context_parallel = ContextParallel::kCausal,
    .graph = GraphSupport::kSingleTokenDecode,
};

constexpr Capability kPortable{
    .backend = BackendId::kPortable,
    .name = "portable",
    .source = "vLLM (Triton)",
    .head_dims = {.equal = {32, 512}},
    .dtypes = kHalfAndFloat,
    .quantised_kv = {KvFormat::kFp8E4M3, KvFormat::kFp8E5M2, KvFormat::kInt8PerTokenHead,
                     KvFormat::kFp8PerTokenHead, KvFormat::kInt4PerTokenHead},
    .kv_scales = {KvScales::kNone, KvScales::kPerTensor, KvScales::kPerTokenHead},
    .page_sizes = {.multiple_of = 16},
    .ragged = true,
    .kinds = kAllKinds,
    .window = WindowSupport::kSymmetric,
    .softcap = true,
    .alibi = true,
    .sinks = true,
    .batch_invariant = true,
    .graph = GraphSupport::kAlways,
};

constexpr Capability kFlex{
    .backend = BackendId::kFlex,
    .name = "flex",
    .source = "vLLM (FlexAttention)",
    .head_dims = {.equal = {1, 512}, .unequal = kUpTo512},
    .dtypes = kHalfAndFloat,
    .page_sizes = {.multiple_of = 16},
    .ragged = true,
    .kinds = {kDecoder, kEncoderOnly},
    .non_causal_decoder = true,
    .window = WindowSupport::kSymmetric,
    .custom_mask = true,
    .batch_invariant = true,
    .graph = GraphSupport::kAlways,
};

// The Hadamard rotation wants a power of two; prefill of raw keys is FlashAttention's, hence 256.
constexpr Capability kTurboQuant{
    .backend = BackendId::kTurboQuant,
    .name = "TurboQuant",
    .source = "vLLM",
    .head_dims = {.power_of_two = true, .equal = {8, 256}},
    .dtypes = kHalf,
    .unquantised_kv = false,
    .quantised_kv = {KvFormat::kTurboQuantK8V4, KvFormat::kTurboQuant4BitNc,
                     KvFormat::kTurboQuantK3V4Nc, KvFormat::kTurboQuant3BitNc},
    .page_sizes = {.listed = kPages16To128},
    .graph = GraphSupport::kUniformBatch,
};

constexpr Capability kPagedAttention{
    .backend = BackendId::kPagedAttention,
    .name = "PagedAttention",
    .source = "vLLM (v1 and v2 kernels)",
    .head_dims = {.listed = kPagedAttentionHeadDims},
    .dtypes = kHalfAndFloat,
    .quantised_kv = {KvFormat::kFp8E4M3},
    .kv_scales = kTensorScales,
    .page_sizes = {.listed = kPages8To32},
    .alibi = true,
    .decode_only = true,
    .graph = GraphSupport::kSingleTokenDecode,
};

constexpr Capability kCpu{
    .backend = BackendId::kCpu,
    .name = "cpu",
    .source = "src/backends/cpu",
    .built = true,
    .device = DeviceKind::kCpu,
    .head_dims = {.multiple_of = 8, .equal = {8, 512}, .unequal = kUpTo512},
    .dtypes = kHalfAndFloat,
    .kv_scales = kTensorOrHeadScales,
    .scales_unquantised_kv = true,
    .page_sizes = {.multiple_of = 1},
    .ragged = true,
    .kinds = kAllKinds,
    .non_causal_decoder = true,
    .window = WindowSupport::kAny,
    .softcap = true,
    .alibi = true,
    .sinks = true,
    .custom_mask = true,
    .lse = true,
    .batch_invariant = true,
};

constexpr Capability reference() {
  Capability row = kCpu;
  row.backend = BackendId::kReference;
  row.name = "reference";
  row.source = "src/backends/reference";
  row.head_dims = {.unequal = kAnyPair};
  return row;
}

constexpr std::array kCapabilities{
    kFlashAttention2,
    kFlashAttention3,
    kFlashAttention4Hopper,
    kFlashAttention4Blackwell,
    kFlashAttention4Blackwell256,
    kFlashInferTrtLlm,
    flashinfer_trtllm_without_groups(),
    kFlashInferNative,
    kPortable,
    kFlex,
    kTurboQuant,
    kPagedAttention,
    kCpu,
    reference(),
};

}  // namespace

std::span<const Capability> capabilities() {
  return kCapabilities;
}

}  // namespace rapt
