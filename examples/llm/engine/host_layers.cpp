#include "llm/engine/host_layers.hpp"

#include <cstring>
#include <utility>

#include "llm/engine/rotations.hpp"

namespace llm {
namespace {

using rapt::DType;
using rapt::TensorView;

constexpr int64_t k16Bits = sizeof(uint16_t);

rapt::CpuIsa host_isa(const rapt::Context& context) {
  const rapt::DeviceInfo& device = context.device();
  return device.kind == rapt::DeviceKind::kCpu ? device.isa : rapt::host_cpu().isa;
}

std::vector<float> to_vector(const Matrix& norm) {
  return {norm.f32(), norm.f32() + norm.cols()};
}

}  // namespace

HostLayers::HostLayers(Model model, rapt::Context& context, ThreadPool& pool, DType dtype,
                       int64_t max_tokens)
    : config_(std::move(model.config)),
      pool_(pool),
      kernels_(kernels_for(host_isa(context))),
      dtype_(dtype) {
  for (LayerWeights& layer : model.layers) {
    Block& block = blocks_.emplace_back();
    block.attention_norm = to_vector(layer.attention_norm);
    block.ffn_norm = to_vector(layer.ffn_norm);
    block.qkv = Linear({&layer.wq, &layer.wk, &layer.wv}, pool, weights_);
    block.attention_out = Linear({&layer.wo}, pool, weights_);
    block.gate_up = Linear({&layer.w_gate, &layer.w_up}, pool, weights_);
    block.down = Linear({&layer.w_down}, pool, weights_);
    layer = {};  // its memory is of no more use
  }
  embedding_ = Linear({&model.token_embedding}, pool, weights_);
  if (!config_.tied_embeddings) output_ = Linear({&model.output}, pool, weights_);
  final_norm_ = to_vector(model.final_norm);

  const int64_t width = blocks_.front().qkv.rows();
  const int64_t attended = config_.num_query_heads * config_.head_dim;
  x_ = Activations(max_tokens, config_.dim);
  qkv_ = Activations(max_tokens, width);
  gate_up_ = Activations(max_tokens, 2 * config_.hidden_dim);
  slots_ = ExchangeBuffer(context, max_tokens * static_cast<int64_t>(sizeof(int64_t)));
  if (is_narrow()) {
    qkv16_ = ExchangeBuffer(context, max_tokens * width * k16Bits);
    attended16_ = ExchangeBuffer(context, max_tokens * attended * k16Bits);
  } else {
    attended_ = Activations(max_tokens, attended);
  }
}

int64_t HostLayers::weight_bytes() const {
  int64_t bytes = config_.tied_embeddings ? embedding_.weight_bytes() : output_.weight_bytes();
  for (const Block& block : blocks_)
    bytes += block.qkv.weight_bytes() + block.attention_out.weight_bytes() +
             block.gate_up.weight_bytes() + block.down.weight_bytes();
  return bytes;
}

void HostLayers::apply(const Linear& linear, const Linear::MakeRow& make_row, Activations& out,
                       bool accumulate) {
  linear.apply(kernels_, pool_, make_row, step_->num_tokens(), out, accumulate);
}

// Rows of x_, normalised.
Linear::MakeRow HostLayers::normed(const std::vector<float>& weight) const {
  return [this, &weight](int64_t r, float* row) {
    kernels_.rms_norm(x_.row(r), weight.data(), config_.rms_norm_eps, config_.dim, row);
  };
}

void HostLayers::begin(const Step& step) {
  step_ = &step;
  const size_t slot_bytes = step.slots.size() * sizeof(int64_t);
  std::memcpy(slots_.host(), step.slots.data(), slot_bytes);
  slots_.to_device(static_cast<int64_t>(slot_bytes));
  cosines_.resize(static_cast<size_t>(step.num_tokens() * config_.head_dim / 2));
  sines_.resize(cosines_.size());
  find_rotations(config_, step, pool_, cosines_.data(), sines_.data());
  pool_.run_ranges(step.num_tokens(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      embedding_.copy_row(kernels_, step.tokens[static_cast<size_t>(t)], x_.row(t));
  });
}

// Rotates the query and key heads of qkv_ and narrows all heads to the attention's type.
AttentionTensors HostLayers::before_attention(int64_t block) {
  const Block& weights = blocks_[static_cast<size_t>(block)];
  apply(weights.qkv, normed(weights.attention_norm), qkv_, false);
  const int64_t head_dim = config_.head_dim, pairs = head_dim / 2, width = weights.qkv.rows();
  const int64_t num_rotated = config_.num_query_heads + config_.num_kv_heads;
  const auto rotate = config_.rope_style == RopeStyle::kHalves ? kernels_.rotate_halves
                                                               : kernels_.rotate_neighbours;
  auto* narrowed = reinterpret_cast<uint16_t*>(qkv16_.host());
  pool_.run_ranges(step_->num_tokens(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t head = 0; head < num_rotated; ++head)
        rotate(qkv_.row(t) + head * head_dim, cosines_.data() + t * pairs,
               sines_.data() + t * pairs, pairs);
      if (is_narrow()) kernels_.narrow(qkv_.row(t), dtype_, width, narrowed + t * width);
    }
  });
  return attention_tensors();
}

AttentionTensors HostLayers::attention_tensors() {
  const int64_t head_dim = config_.head_dim, num_tokens = step_->num_tokens();
  const int64_t num_heads = config_.num_query_heads, num_kv_heads = config_.num_kv_heads;
  const int64_t width = blocks_.front().qkv.rows();
  const auto heads_at = [&](int64_t first_head, int64_t count) {
    const int64_t at = first_head * head_dim;
    const void* data = is_narrow() ? static_cast<const void*>(qkv16_.device_data() + at * k16Bits)
                                   : qkv_.row(0) + at;
    return TensorView::strided(data, dtype_, {num_tokens, count, head_dim},
                               {is_narrow() ? width : qkv_.stride(), head_dim, 1}, qkv16_.device());
  };
  const void* out =
      is_narrow() ? static_cast<const void*>(attended16_.device_data()) : attended_.row(0);
  const int64_t out_stride = is_narrow() ? num_heads * head_dim : attended_.stride();
  return {.q = heads_at(0, num_heads),
          .k = heads_at(num_heads, num_kv_heads),
          .v = heads_at(num_heads + num_kv_heads, num_kv_heads),
          .out = TensorView::strided(out, dtype_, {num_tokens, num_heads, head_dim},
                                     {out_stride, head_dim, 1}, attended16_.device()),
          .slot_mapping = TensorView::contiguous(slots_.device_data(), DType::kInt64, {num_tokens},
                                                 slots_.device())};
}

void HostLayers::to_attention() {
  if (is_narrow()) qkv16_.to_device(step_->num_tokens() * blocks_.front().qkv.rows() * k16Bits);
}

void HostLayers::from_attention() {
  if (is_narrow())
    attended16_.to_host(step_->num_tokens() * config_.num_query_heads * config_.head_dim * k16Bits);
}

void HostLayers::copy_attended(int64_t token, float* row) const {
  const int64_t width = config_.num_query_heads * config_.head_dim;
  if (is_narrow())
    kernels_.widen(reinterpret_cast<const uint16_t*>(attended16_.host()) + token * width, dtype_,
                   width, row);
  else
    std::memcpy(row, attended_.row(token), static_cast<size_t>(width) * sizeof(float));
}

void HostLayers::after_attention(int64_t block) {
  const Block& weights = blocks_[static_cast<size_t>(block)];
  const int64_t hidden = config_.hidden_dim;
  apply(
      weights.attention_out, [this](int64_t r, float* row) { copy_attended(r, row); }, x_, true);
  apply(weights.gate_up, normed(weights.ffn_norm), gate_up_, false);
  const auto swiglu = [&](int64_t r, float* row) {
    kernels_.swiglu(gate_up_.row(r), gate_up_.row(r) + hidden, hidden, row);
  };
  apply(weights.down, swiglu, x_, true);
}

TensorView HostLayers::logits() {
  const auto num_rows = static_cast<int64_t>(step_->logit_rows.size());
  // Rows ascend, so a row moves down before it is overwritten.
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t from = step_->logit_rows[static_cast<size_t>(r)];
    if (from != r)
      std::memcpy(x_.row(r), x_.row(from), static_cast<size_t>(config_.dim) * sizeof(float));
  }
  const Linear& output = config_.tied_embeddings ? embedding_ : output_;
  if (logits_.num_rows() < num_rows) logits_ = Activations(num_rows, config_.vocab_size);
  output.apply(kernels_, pool_, normed(final_norm_), num_rows, logits_);
  return TensorView::strided(logits_.row(0), DType::kFloat32, {num_rows, config_.vocab_size},
                             {logits_.stride(), 1});
}

}  // namespace llm
