#include "llm/engine/transformer.hpp"

#include <chrono>
#include <utility>

#include "llm/engine/device_layers.hpp"
#include "llm/engine/host_layers.hpp"
#include "llm/engine/large_memory.hpp"
#include "llm/model/failure.hpp"

namespace llm {
namespace {

using rapt::DType;
using rapt::TensorView;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

rapt::KvFormat resolved_format(rapt::KvFormat asked, const rapt::Context& context) {
  const bool on_gpu = context.device().kind == rapt::DeviceKind::kCuda;
  return asked == rapt::KvFormat::kAuto && on_gpu ? rapt::KvFormat::kFloat16 : asked;
}

rapt::DeviceBuffer allocate_cache(rapt::Context& context, int64_t layer_bytes, int64_t num_layers,
                                  int64_t num_pages) {
  int64_t bytes;
  try {
    if (!__builtin_mul_overflow(layer_bytes, num_layers, &bytes)) {
      rapt::DeviceBuffer cache(context, static_cast<size_t>(bytes));
      if (context.device().kind == rapt::DeviceKind::kCpu)
        ask_huge_pages(static_cast<std::byte*>(cache.data()), bytes);
      return cache;
    }
  } catch (const rapt::Error& error) {
    if (error.code() != rapt::ErrorCode::kOutOfMemory) throw;
  }
  fail(rapt::ErrorCode::kOutOfMemory, "no memory for a KV cache of ", num_pages, " pages, ",
       layer_bytes, " bytes in each of ", num_layers,
       " layers: ask for fewer pages, fewer tokens or a 16-bit format");
}

bool is_dense_on_device(DensePlace asked, const rapt::Context& context,
                        const rapt::DeviceBuffer& cache) {
  const bool has_gpu = context.device().kind == rapt::DeviceKind::kCuda && !cache.host_accessible();
  check_supported(asked != DensePlace::kDevice || has_gpu,
                  "dense is device, but the attention is "
                  "on ",
                  context.device().name,
                  ": dense layers on the device are for \"cuda\" devices, leave dense at auto");
  return asked == DensePlace::kAuto ? has_gpu : asked == DensePlace::kDevice;
}

}  // namespace

rapt::AttentionSpec attention_spec(const ModelConfig& config, rapt::KvFormat kv_format,
                                   int32_t page_size) {
  const DType dtype = kv_format == rapt::KvFormat::kAuto
                          ? DType::kFloat32
                          : rapt::element_dtype(kv_format).value_or(DType::kBFloat16);
  return {.num_query_heads = static_cast<int32_t>(config.num_query_heads),
          .num_kv_heads = static_cast<int32_t>(config.num_kv_heads),
          .head_dim_qk = static_cast<int32_t>(config.head_dim),
          .dtype = dtype,
          .kv_format = kv_format,
          .page_size = page_size,
          .batch_invariant = true};
}

Transformer::Transformer(Model model, rapt::Context& context, ThreadPool& pool,
                         const TransformerOptions& options)
    : config_(model.config),
      context_(context),
      attention_(
          context,
          attention_spec(config_, resolved_format(options.kv_format, context), options.page_size),
          {.backend = options.backend}),
      num_pages_(options.num_pages) {
  const auto geometry = rapt::KvCacheGeometry::of(
      attention_.spec(), num_pages_, rapt::KvShape::kPagesKv, attention_.selection().layout);
  const int64_t layer_bytes = geometry.total_bytes();
  cache_ = allocate_cache(context, layer_bytes, config_.num_layers, num_pages_);
  const bool on_device = is_dense_on_device(options.dense, context, cache_);
  for (int64_t block = 0; block < config_.num_layers; ++block)
    block_caches_.push_back(
        geometry.view(static_cast<std::byte*>(cache_.data()) + layer_bytes * block,
                      /*layer=*/0, cache_.device()));
  const DType dtype = attention_.spec().dtype;
  if (on_device)
    dense_ =
        std::make_unique<DeviceLayers>(std::move(model), context, pool, dtype, options.max_tokens);
  else
    dense_ =
        std::make_unique<HostLayers>(std::move(model), context, pool, dtype, options.max_tokens);
}

int64_t Transformer::cache_bytes_per_token() const {
  const auto geometry = rapt::KvCacheGeometry::of(attention_.spec(), num_pages_);
  return geometry.page_bytes() / attention_.spec().page_size * config_.num_layers;
}

void Transformer::plan(const Step& step) {
  const rapt::Batch batch = {
      .query_start = step.query_start,
      .kv_len = step.kv_len,
      .page_table = TensorView::contiguous(step.page_table.data(), DType::kInt32,
                                           {step.num_requests(), step.table_width}),
      .num_pages = num_pages_};
  if (plan_)
    attention_.replan(*plan_, batch);
  else
    plan_ = std::make_unique<rapt::Plan>(attention_.plan(batch));
  if (workspace_.bytes() < plan_->workspace_bytes())
    workspace_ = rapt::DeviceBuffer(context_, plan_->workspace_bytes());
}

void Transformer::attend(const AttentionTensors& tensors, const rapt::KvCacheView& cache) {
  dense_->to_attention();
  attention_.write_kv(
      {.k = tensors.k, .v = tensors.v, .slot_mapping = tensors.slot_mapping, .cache = cache});
  attention_.run(*plan_, {.q = tensors.q,
                          .k = cache.k,
                          .v = cache.v,
                          .out = tensors.out,
                          .workspace = {workspace_.data(), workspace_.bytes()}});
  dense_->from_attention();
}

TensorView Transformer::forward(const Step& step) {
  const double start = now();
  plan(step);
  time_.attention += now() - start;
  dense_->begin(step);
  for (int64_t block = 0; block < config_.num_layers; ++block) {
    const AttentionTensors tensors = dense_->before_attention(block);
    const double begin = now();
    attend(tensors, block_caches_[static_cast<size_t>(block)]);
    time_.attention += now() - begin;
    dense_->after_attention(block);
  }
  const TensorView logits = dense_->logits();
  time_.total += now() - start;
  return logits;
}

}  // namespace llm
