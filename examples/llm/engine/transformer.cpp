#include "llm/engine/transformer.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "llm/model/failure.hpp"

namespace llm {
namespace {

using rapt::DType;
using rapt::TensorView;

constexpr int64_t k16Bits = sizeof(uint16_t);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of the dense layers, wherever the attention runs.
rapt::CpuIsa host_isa(const rapt::Context& context) {
  const rapt::DeviceInfo& device = context.device();
  return device.kind == rapt::DeviceKind::kCpu ? device.isa : rapt::host_cpu().isa;
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

std::vector<float> to_vector(const Matrix& norm) {
  return {norm.f32(), norm.f32() + norm.cols()};
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
      pool_(pool),
      kernels_(kernels_for(host_isa(context))),
      attention_(
          context,
          attention_spec(config_, resolved_format(options.kv_format, context), options.page_size),
          {.backend = options.backend}),
      num_pages_(options.num_pages) {
  const auto geometry = rapt::KvCacheGeometry::of(
      attention_.spec(), num_pages_, rapt::KvShape::kPagesKv, attention_.selection().layout);
  const int64_t layer_bytes = geometry.total_bytes();
  cache_ = allocate_cache(context, layer_bytes, config_.num_layers, num_pages_);
  for (LayerWeights& layer : model.layers) {
    Block& block = blocks_.emplace_back();
    block.attention_norm = to_vector(layer.attention_norm);
    block.ffn_norm = to_vector(layer.ffn_norm);
    block.qkv = Linear({&layer.wq, &layer.wk, &layer.wv}, pool, weights_);
    block.attention_out = Linear({&layer.wo}, pool, weights_);
    block.gate_up = Linear({&layer.w_gate, &layer.w_up}, pool, weights_);
    block.down = Linear({&layer.w_down}, pool, weights_);
    block.cache = geometry.view(
        static_cast<std::byte*>(cache_.data()) + layer_bytes * std::ssize(blocks_) - layer_bytes,
        /*layer=*/0, cache_.device());
    layer = {};  // its memory is of no more use
  }
  embedding_ = Linear({&model.token_embedding}, pool, weights_);
  if (!config_.tied_embeddings) output_ = Linear({&model.output}, pool, weights_);
  final_norm_ = to_vector(model.final_norm);

  const int64_t rows = options.max_tokens;
  x_ = Activations(rows, config_.dim);
  qkv_ = Activations(rows, blocks_.front().qkv.rows());
  gate_up_ = Activations(rows, 2 * config_.hidden_dim);
  slots_ = ExchangeBuffer(context, rows * static_cast<int64_t>(sizeof(int64_t)));
  const int64_t attended = config_.num_query_heads * config_.head_dim;
  if (attention_.spec().dtype == DType::kFloat32) {
    attended_ = Activations(rows, attended);
  } else {
    qkv16_ = ExchangeBuffer(context, rows * blocks_.front().qkv.rows() * k16Bits);
    attended16_ = ExchangeBuffer(context, rows * attended * k16Bits);
  }
}

int64_t Transformer::weight_bytes() const {
  int64_t bytes = config_.tied_embeddings ? embedding_.weight_bytes() : output_.weight_bytes();
  for (const Block& block : blocks_)
    bytes += block.qkv.weight_bytes() + block.attention_out.weight_bytes() +
             block.gate_up.weight_bytes() + block.down.weight_bytes();
  return bytes;
}

int64_t Transformer::cache_bytes_per_token() const {
  const auto geometry = rapt::KvCacheGeometry::of(attention_.spec(), num_pages_);
  return geometry.page_bytes() / attention_.spec().page_size * config_.num_layers;
}

// Angles are positions times frequencies, in fp64: at position 100,000 fp32 would be off by 0.004.
void Transformer::find_rotations(const Step& step) {
  const auto pairs = static_cast<size_t>(config_.head_dim / 2);
  cosines_.resize(step.tokens.size() * pairs);
  sines_.resize(cosines_.size());
  pool_.run_ranges(step.num_tokens(), 16, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = step.positions[t] * config_.rope_frequencies[i];
        cosines_[t * pairs + i] = static_cast<float>(std::cos(angle));
        sines_[t * pairs + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

// Rows of x_, normalised.
Linear::MakeRow Transformer::normed(const std::vector<float>& weight) const {
  return [this, &weight](int64_t r, float* row) {
    kernels_.rms_norm(x_.row(r), weight.data(), config_.rms_norm_eps, config_.dim, row);
  };
}

// Rotates the query and key heads of qkv_ and narrows them to the attention's type.
Transformer::Heads Transformer::prepare_heads(int64_t num_tokens) {
  const int64_t head_dim = config_.head_dim, pairs = head_dim / 2;
  const int64_t num_rotated = config_.num_query_heads + config_.num_kv_heads;
  const int64_t width = (num_rotated + config_.num_kv_heads) * head_dim;
  const auto rotate = config_.rope_style == RopeStyle::kHalves ? kernels_.rotate_halves
                                                               : kernels_.rotate_neighbours;
  const DType dtype = attention_.spec().dtype;
  const bool narrow = dtype != DType::kFloat32;
  auto* narrowed = reinterpret_cast<uint16_t*>(qkv16_.host());
  pool_.run_ranges(num_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t head = 0; head < num_rotated; ++head)
        rotate(qkv_.row(t) + head * head_dim, cosines_.data() + t * pairs,
               sines_.data() + t * pairs, pairs);
      if (narrow) kernels_.narrow(qkv_.row(t), dtype, width, narrowed + t * width);
    }
  });

  const int64_t stride = narrow ? width : qkv_.stride();
  const auto heads_at = [&](int64_t first_head, int64_t num_heads) {
    const int64_t at = first_head * head_dim;
    const void* data =
        narrow ? static_cast<const void*>(qkv16_.device_data() + at * k16Bits) : qkv_.row(0) + at;
    return TensorView::strided(data, dtype, {num_tokens, num_heads, head_dim},
                               {stride, head_dim, 1}, qkv16_.device());
  };
  const int64_t out_stride = narrow ? config_.num_query_heads * head_dim : attended_.stride();
  return {.q = heads_at(0, config_.num_query_heads),
          .k = heads_at(config_.num_query_heads, config_.num_kv_heads),
          .v = heads_at(num_rotated, config_.num_kv_heads),
          .out = TensorView::strided(
              narrow ? static_cast<const void*>(attended16_.device_data()) : attended_.row(0),
              dtype, {num_tokens, config_.num_query_heads, head_dim}, {out_stride, head_dim, 1},
              attended16_.device())};
}

// Leaves the block's attention where copy_attended() takes it from.
void Transformer::attend(int64_t num_tokens, const Block& block, const Heads& heads) {
  const double start = now();
  const bool narrow = attention_.spec().dtype != DType::kFloat32;
  if (narrow) qkv16_.to_device(num_tokens * heads.q.stride[0] * k16Bits);
  attention_.write_kv({.k = heads.k,
                       .v = heads.v,
                       .slot_mapping = TensorView::contiguous(slots_.device_data(), DType::kInt64,
                                                              {num_tokens}, slots_.device()),
                       .cache = block.cache});
  attention_.run(*plan_, {.q = heads.q,
                          .k = block.cache.k,
                          .v = block.cache.v,
                          .out = heads.out,
                          .workspace = {workspace_.data(), workspace_.bytes()}});
  if (narrow) attended16_.to_host(num_tokens * heads.out.stride[0] * k16Bits);
  time_.attention += now() - start;
}

void Transformer::copy_attended(int64_t token, float* row) const {
  const int64_t width = config_.num_query_heads * config_.head_dim;
  if (attention_.spec().dtype == DType::kFloat32)
    std::memcpy(row, attended_.row(token), static_cast<size_t>(width) * sizeof(float));
  else
    kernels_.widen(reinterpret_cast<const uint16_t*>(attended16_.host()) + token * width,
                   attention_.spec().dtype, width, row);
}

void Transformer::run_block(const Step& step, Block& block) {
  const int64_t num_tokens = step.num_tokens(), hidden = config_.hidden_dim;
  const auto apply = [&](const Linear& linear, const Linear::MakeRow& make_row, Activations& out,
                         bool accumulate) {
    linear.apply(kernels_, pool_, make_row, num_tokens, out, accumulate);
  };
  apply(block.qkv, normed(block.attention_norm), qkv_, false);
  attend(num_tokens, block, prepare_heads(num_tokens));
  apply(
      block.attention_out, [this](int64_t r, float* row) { copy_attended(r, row); }, x_, true);
  apply(block.gate_up, normed(block.ffn_norm), gate_up_, false);
  const auto swiglu = [&](int64_t r, float* row) {
    kernels_.swiglu(gate_up_.row(r), gate_up_.row(r) + hidden, hidden, row);
  };
  apply(block.down, swiglu, x_, true);
}

TensorView Transformer::forward(const Step& step) {
  const double start = now();
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
  const auto slot_bytes = step.slots.size() * sizeof(int64_t);
  std::memcpy(slots_.host(), step.slots.data(), slot_bytes);
  slots_.to_device(static_cast<int64_t>(slot_bytes));
  time_.attention += now() - start;

  find_rotations(step);
  pool_.run_ranges(step.num_tokens(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      embedding_.copy_row(kernels_, step.tokens[static_cast<size_t>(t)], x_.row(t));
  });
  for (Block& block : blocks_) run_block(step, block);

  const auto num_rows = static_cast<int64_t>(step.logit_rows.size());
  // Rows ascend, so a row moves down before it is overwritten.
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t from = step.logit_rows[static_cast<size_t>(r)];
    if (from != r)
      std::memcpy(x_.row(r), x_.row(from), static_cast<size_t>(config_.dim) * sizeof(float));
  }
  const Linear& output = config_.tied_embeddings ? embedding_ : output_;
  if (logits_.num_rows() < num_rows) logits_ = Activations(num_rows, config_.vocab_size);
  output.apply(kernels_, pool_, normed(final_norm_), num_rows, logits_);
  time_.total += now() - start;
  return TensorView::strided(logits_.row(0), DType::kFloat32, {num_rows, config_.vocab_size},
                             {logits_.stride(), 1});
}

}  // namespace llm
