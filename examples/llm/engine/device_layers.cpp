#include "llm/engine/device_layers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "llm/engine/rotations.hpp"
#include "llm/model/failure.hpp"

namespace llm {
namespace {

constexpr int64_t kFloatBytes = sizeof(float), kHalfBytes = sizeof(uint16_t);
constexpr int64_t kStagedElems = int64_t{4} << 20;  // of weights on their way to the device

int64_t num_weights(const Model& model) {
  int64_t count = 0;
  const auto add = [&](const Matrix& matrix) { count += matrix.rows() * matrix.cols(); };
  for (const LayerWeights& layer : model.layers)
    for (const Matrix* matrix : {&layer.attention_norm, &layer.wq, &layer.wk, &layer.wv, &layer.wo,
                                 &layer.ffn_norm, &layer.w_gate, &layer.w_up, &layer.w_down})
      add(*matrix);
  add(model.token_embedding);
  add(model.output);
  add(model.final_norm);
  return count;
}

}  // namespace

DeviceLayers::DeviceLayers(Model model, rapt::Context& context, ThreadPool& pool, rapt::DType dtype,
                           int64_t max_tokens)
    : config_(std::move(model.config)),
      context_(context),
      pool_(pool),
      dtype_(dtype),
      gpu_(context.tensor_device().index),
      kernels_(gpu_, context.device().compute_capability) {
  const cuda::CurrentContext current(gpu_);
  products_ = std::make_unique<cuda::CublasLt>(context);
  const int64_t bytes = num_weights(model) * kFloatBytes;
  try {
    upload_model(model);
  } catch (const rapt::Error& error) {
    if (error.code() != rapt::ErrorCode::kOutOfMemory) throw;
    fail(rapt::ErrorCode::kOutOfMemory, error.what(), ": the model's weights take ", bytes,
         " bytes as fp32 on the GPU; keep them on the host with --dense host, or take a smaller "
         "model or fewer pages");
  }

  const int64_t attended = config_.num_query_heads * config_.head_dim;
  const int64_t width = blocks_.front().qkv.rows;
  x_ = floats(max_tokens * config_.dim);
  normed_ = floats(max_tokens * config_.dim);
  qkv_ = floats(max_tokens * width);
  attended_ = floats(max_tokens * attended);
  gate_up_ = floats(max_tokens * 2 * config_.hidden_dim);
  hidden_ = floats(max_tokens * config_.hidden_dim);
  qkv16_ = rapt::DeviceBuffer(context, static_cast<size_t>(max_tokens * width * kHalfBytes));
  attended16_ =
      rapt::DeviceBuffer(context, static_cast<size_t>(max_tokens * attended * kHalfBytes));
  const int64_t input_bytes =
      max_tokens * (static_cast<int64_t>(sizeof(int64_t) + 2 * sizeof(int32_t)) +
                    config_.head_dim * kFloatBytes);
  staged_inputs_ = cuda::PinnedBuffer(gpu_, input_bytes);
  input_buffer_ = rapt::DeviceBuffer(context, static_cast<size_t>(input_bytes));
}

DeviceLayers::~DeviceLayers() {
  const cuda::CurrentContext current(gpu_);
  products_.reset();
}

void DeviceLayers::upload_model(Model& model) {
  for (LayerWeights& layer : model.layers) {
    blocks_.push_back({.attention_norm = upload({&layer.attention_norm}),
                       .ffn_norm = upload({&layer.ffn_norm}),
                       .qkv = upload({&layer.wq, &layer.wk, &layer.wv}),
                       .attention_out = upload({&layer.wo}),
                       .gate_up = upload({&layer.w_gate, &layer.w_up}),
                       .down = upload({&layer.w_down})});
    layer = {};  // its memory is of no more use
  }
  embedding_ = upload({&model.token_embedding});
  if (!config_.tied_embeddings) output_ = upload({&model.output});
  final_norm_ = upload({&model.final_norm});
  staged_weights_ = {};
}

DeviceLayers::Weights DeviceLayers::upload(std::initializer_list<const Matrix*> parts) {
  Weights weights;
  for (const Matrix* part : parts) weights.rows += part->rows();
  weights.cols = (*parts.begin())->cols();
  const int64_t row_bytes = weights.cols * kFloatBytes;
  weights.buffer = rapt::DeviceBuffer(context_, static_cast<size_t>(weights.rows * row_bytes));
  const int64_t most_rows = std::max<int64_t>(kStagedElems / weights.cols, 1);
  staged_weights_.resize(
      std::max(staged_weights_.size(), static_cast<size_t>(most_rows * weights.cols)));
  int64_t offset = 0;
  for (const Matrix* part : parts) {
    for (int64_t first = 0; first < part->rows(); first += most_rows) {
      const int64_t rows = std::min(most_rows, part->rows() - first);
      pool_.run_ranges(rows, 1, [&](int64_t begin, int64_t end) {
        const auto count = static_cast<size_t>((end - begin) * weights.cols);
        to_float(part->format(),
                 {part->data() + (first + begin) * part->row_bytes(),
                  static_cast<size_t>((end - begin) * part->row_bytes())},
                 {staged_weights_.data() + begin * weights.cols, count});
      });
      weights.buffer.copy_from_host(staged_weights_.data(), static_cast<size_t>(rows * row_bytes),
                                    static_cast<size_t>(offset));
      offset += rows * row_bytes;
    }
  }
  return weights;
}

float* DeviceLayers::floats(int64_t count) {
  activation_buffers_.emplace_back(context_, static_cast<size_t>(count * kFloatBytes));
  return static_cast<float*>(activation_buffers_.back().data());
}

int64_t DeviceLayers::weight_bytes() const {
  const auto bytes_of = [](const Weights& weights) {
    return static_cast<int64_t>(weights.buffer.bytes());
  };
  int64_t bytes = bytes_of(config_.tied_embeddings ? embedding_ : output_);
  for (const Block& block : blocks_)
    bytes += bytes_of(block.qkv) + bytes_of(block.attention_out) + bytes_of(block.gate_up) +
             bytes_of(block.down);
  return bytes;
}

void DeviceLayers::multiply(const Weights& weights, const float* x, float* out, bool accumulate) {
  products_->multiply(weights.data(), weights.rows, weights.cols, x, step_->num_tokens(), out,
                      accumulate);
}

void DeviceLayers::norm(const Weights& weights, float* out) {
  kernels_.rms_norm(out, x_, weights.data(), nullptr, step_->num_tokens(), config_.dim,
                    config_.rms_norm_eps);
}

void DeviceLayers::begin(const Step& step) {
  step_ = &step;
  const auto num_tokens = static_cast<size_t>(step.num_tokens());
  const size_t num_angles = num_tokens * static_cast<size_t>(config_.head_dim / 2);
  size_t bytes = 0;
  // Room for an array, and where the device will have it. The longest elements come first.
  const auto place = [&]<typename T>(const T*& on_device, size_t count) {
    on_device = reinterpret_cast<const T*>(static_cast<std::byte*>(input_buffer_.data()) + bytes);
    auto* staged = reinterpret_cast<T*>(staged_inputs_.data() + bytes);
    bytes += count * sizeof(T);
    return staged;
  };
  std::ranges::copy(step.slots, place(inputs_.slots, num_tokens));
  float* const cosines = place(inputs_.cosines, num_angles);
  float* const sines = place(inputs_.sines, num_angles);
  find_rotations(config_, step, pool_, cosines, sines);
  std::ranges::copy(step.tokens, place(inputs_.tokens, num_tokens));
  std::ranges::copy(step.logit_rows, place(inputs_.logit_rows, step.logit_rows.size()));

  const cuda::CurrentContext current(gpu_);
  const cuda::Driver& driver = gpu_.driver();
  driver.check(
      driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<cuda::DevicePointer>(input_buffer_.data()),
                                  staged_inputs_.data(), bytes, nullptr),
      "cuMemcpyHtoDAsync");
  kernels_.embed(x_, embedding_.data(), inputs_.tokens, step.num_tokens(), config_.dim);
}

AttentionTensors DeviceLayers::before_attention(int64_t block) {
  const cuda::CurrentContext current(gpu_);
  const Block& weights = blocks_[static_cast<size_t>(block)];
  const int64_t num_tokens = step_->num_tokens(), head_dim = config_.head_dim;
  const int64_t num_heads = config_.num_query_heads, num_kv_heads = config_.num_kv_heads;
  norm(weights.attention_norm, normed_);
  multiply(weights.qkv, normed_, qkv_);
  kernels_.rotate({.heads = static_cast<uint16_t*>(qkv16_.data()),
                   .qkv = qkv_,
                   .cosines = inputs_.cosines,
                   .sines = inputs_.sines,
                   .num_tokens = num_tokens,
                   .num_heads = num_heads + 2 * num_kv_heads,
                   .num_rotated = num_heads + num_kv_heads,
                   .head_dim = head_dim,
                   .is_halves = config_.rope_style == RopeStyle::kHalves,
                   .dtype = dtype_});
  const auto heads_at = [&](int64_t first_head, int64_t count) {
    return rapt::TensorView::strided(
        static_cast<const std::byte*>(qkv16_.data()) + first_head * head_dim * kHalfBytes, dtype_,
        {num_tokens, count, head_dim}, {weights.qkv.rows, head_dim, 1}, qkv16_.device());
  };
  return {.q = heads_at(0, num_heads),
          .k = heads_at(num_heads, num_kv_heads),
          .v = heads_at(num_heads + num_kv_heads, num_kv_heads),
          .out = rapt::TensorView::contiguous(
              attended16_.data(), dtype_, {num_tokens, num_heads, head_dim}, attended16_.device()),
          .slot_mapping = rapt::TensorView::contiguous(inputs_.slots, rapt::DType::kInt64,
                                                       {num_tokens}, input_buffer_.device())};
}

void DeviceLayers::after_attention(int64_t block) {
  const cuda::CurrentContext current(gpu_);
  const Block& weights = blocks_[static_cast<size_t>(block)];
  const int64_t num_tokens = step_->num_tokens();
  kernels_.widen(attended_, static_cast<const uint16_t*>(attended16_.data()),
                 num_tokens * weights.attention_out.cols, dtype_);
  multiply(weights.attention_out, attended_, x_, /*accumulate=*/true);
  norm(weights.ffn_norm, normed_);
  multiply(weights.gate_up, normed_, gate_up_);
  kernels_.swiglu(hidden_, gate_up_, num_tokens, config_.hidden_dim);
  multiply(weights.down, hidden_, x_, /*accumulate=*/true);
}

rapt::TensorView DeviceLayers::logits() {
  const cuda::CurrentContext current(gpu_);
  const cuda::Driver& driver = gpu_.driver();
  const auto num_rows = static_cast<int64_t>(step_->logit_rows.size());
  const int64_t bytes = num_rows * config_.vocab_size * kFloatBytes;
  if (host_logits_.bytes() < bytes) {
    host_logits_ = cuda::PinnedBuffer(gpu_, bytes);
    logit_buffer_ = rapt::DeviceBuffer(context_, static_cast<size_t>(bytes));
  }
  if (num_rows > 0) {
    kernels_.rms_norm(normed_, x_, final_norm_.data(), inputs_.logit_rows, num_rows, config_.dim,
                      config_.rms_norm_eps);
    const Weights& output = config_.tied_embeddings ? embedding_ : output_;
    products_->multiply(output.data(), output.rows, output.cols, normed_, num_rows,
                        static_cast<float*>(logit_buffer_.data()), /*accumulate=*/false);
    driver.check(
        driver.cuMemcpyDtoHAsync_v2(host_logits_.data(),
                                    reinterpret_cast<cuda::DevicePointer>(logit_buffer_.data()),
                                    static_cast<size_t>(bytes), nullptr),
        "cuMemcpyDtoHAsync");
  }
  // Without logits, too: the next step's numbers go where this one's are read from.
  driver.check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  return rapt::TensorView::contiguous(host_logits_.data(), rapt::DType::kFloat32,
                                      {num_rows, config_.vocab_size});
}

}  // namespace llm
