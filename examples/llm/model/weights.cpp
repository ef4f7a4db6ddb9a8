#include "llm/model/weights.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <thread>

#include "llm/model/failure.hpp"
#include "llm/model/rope.hpp"

namespace llm {
namespace {

// A bound on each extent that no model comes near and under which products of two stay below 2^48.
constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int64_t kMaxHeadDim = int64_t{1} << 16;

struct LayerSlot {
  const char* gguf_name;
  const char* hugging_face_name;
  Matrix LayerWeights::*target;
};

constexpr LayerSlot kLayerSlots[] = {
    {"attn_norm", "input_layernorm", &LayerWeights::attention_norm},
    {"attn_q", "self_attn.q_proj", &LayerWeights::wq},
    {"attn_k", "self_attn.k_proj", &LayerWeights::wk},
    {"attn_v", "self_attn.v_proj", &LayerWeights::wv},
    {"attn_output", "self_attn.o_proj", &LayerWeights::wo},
    {"ffn_norm", "post_attention_layernorm", &LayerWeights::ffn_norm},
    {"ffn_gate", "mlp.gate_proj", &LayerWeights::w_gate},
    {"ffn_up", "mlp.up_proj", &LayerWeights::w_up},
    {"ffn_down", "mlp.down_proj", &LayerWeights::w_down},
};

struct Shape {
  int64_t rows, cols;
  bool is_norm = false;
};

Shape layer_shape(const ModelConfig& c, Matrix LayerWeights::*target) {
  const int64_t q_dim = c.num_query_heads * c.head_dim, kv_dim = c.num_kv_heads * c.head_dim;
  if (target == &LayerWeights::wq) return {q_dim, c.dim};
  if (target == &LayerWeights::wk || target == &LayerWeights::wv) return {kv_dim, c.dim};
  if (target == &LayerWeights::wo) return {c.dim, q_dim};
  if (target == &LayerWeights::w_gate || target == &LayerWeights::w_up)
    return {c.hidden_dim, c.dim};
  if (target == &LayerWeights::w_down) return {c.dim, c.hidden_dim};
  return {1, c.dim, true};
}

void refuse_overlaps(const std::vector<StoredTensor>& tensors, const std::string& file) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const std::less<const std::byte*> before;
  const auto start = [&](size_t i) { return tensors[i].bytes.data(); };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return before(start(a), start(b)); });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t a = order[i - 1], b = order[i];
    check_io(!before(start(b), start(a) + tensors[a].bytes.size()), file, ": tensors ",
             tensors[a].name, " and ", tensors[b].name, " overlap");
  }
}

ElementFormat loaded_format(const WeightSlot& slot, ElementFormat format,
                            const LoadOptions& options) {
  return options.keep_format && !slot.is_norm ? format : ElementFormat::kFloat32;
}

// Rows [first, last) of a matrix.
struct Strip {
  Matrix* target;
  const StoredTensor* source;
  int64_t first, last;

  void load() const {
    const FormatInfo& info = info_of(source->format);
    const int64_t cols = target->cols();
    const int64_t row_bytes = cols / info.block_elems * info.block_bytes;
    const auto stored = source->bytes.subspan(first * row_bytes, (last - first) * row_bytes);
    if (target->format() == ElementFormat::kFloat32) {
      to_float(source->format, stored,
               {target->f32() + first * cols, static_cast<size_t>((last - first) * cols)});
    } else {
      std::memcpy(target->data() + first * row_bytes, stored.data(), stored.size());
    }
  }
};

void load_strips(const std::vector<Strip>& strips, int32_t num_threads) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < strips.size();)
      strips[i].load();
  };
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(num_threads));
  try {
    for (int32_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // Those that could be started load all; whoever computes with as many says what is missing.
  }
  work();
}

}  // namespace

void finish_config(ModelConfig& c, const std::string& file) {
  const auto check_extent = [&](const char* what, int64_t value, int64_t most = kMaxExtent) {
    check_io(value >= 1 && value <= most, file, ": ", what, " is ", value, ", must be in [1, ",
             most, "]");
  };
  check_extent("dim", c.dim);
  check_extent("hidden_dim", c.hidden_dim);
  check_extent("num_layers", c.num_layers);
  check_extent("num_query_heads", c.num_query_heads);
  check_extent("num_kv_heads", c.num_kv_heads);
  check_extent("head_dim", c.head_dim, kMaxHeadDim);
  check_extent("vocab_size", c.vocab_size);
  check_extent("context_length", c.context_length);
  check_extent("num_query_heads * head_dim", c.num_query_heads * c.head_dim);
  check_io(c.num_query_heads % c.num_kv_heads == 0, file, ": num_query_heads is ",
           c.num_query_heads, ", must be a multiple of num_kv_heads, ", c.num_kv_heads);
  check_io(c.head_dim % 2 == 0, file, ": head_dim is ", c.head_dim, ", must be even for RoPE");
  check_io(std::isfinite(c.rms_norm_eps) && c.rms_norm_eps >= 0, file, ": rms_norm_eps is ",
           c.rms_norm_eps, ", must be finite and not negative");
  check_io(std::isfinite(c.rope_theta) && c.rope_theta > 0, file, ": rope_theta is ", c.rope_theta,
           ", must be finite and above 0");
  c.rope_frequencies = rope_frequencies(c.rope_theta, c.head_dim);
}

int64_t num_matrices(const ModelConfig& c) {
  constexpr int64_t kAroundLayers = 2;  // token embedding and final norm
  return std::ssize(kLayerSlots) * c.num_layers + kAroundLayers + (c.tied_embeddings ? 0 : 1);
}

std::vector<WeightSlot> make_weight_slots(Model& model) {
  const ModelConfig& c = model.config;
  model.layers.resize(c.num_layers);
  std::vector<WeightSlot> slots;
  const auto add = [&](Matrix& target, std::string gguf, std::string hugging_face, Shape shape) {
    slots.push_back(
        {&target, std::move(gguf), std::move(hugging_face), shape.rows, shape.cols, shape.is_norm});
  };
  add(model.token_embedding, "token_embd.weight", "model.embed_tokens.weight",
      {c.vocab_size, c.dim});
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string index = std::to_string(i);
    for (const LayerSlot& slot : kLayerSlots) {
      add(model.layers[i].*slot.target, "blk." + index + "." + slot.gguf_name + ".weight",
          "model.layers." + index + "." + slot.hugging_face_name + ".weight",
          layer_shape(c, slot.target));
    }
  }
  add(model.final_norm, "output_norm.weight", "model.norm.weight", {1, c.dim, true});
  if (!c.tied_embeddings)
    add(model.output, "output.weight", "lm_head.weight", {c.vocab_size, c.dim});
  return slots;
}

void fill_weights(const std::vector<WeightSlot>& slots, const std::vector<StoredTensor>& tensors,
                  const LoadOptions& options, const std::string& file) {
  refuse_overlaps(tensors, file);
  constexpr int64_t kStripElems = 1 << 18;  // 1 MiB of fp32: some hundred strips per 100 MB file
  std::vector<Strip> strips;
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightSlot& slot = slots[i];
    try {
      *slot.target = Matrix(loaded_format(slot, tensors[i].format, options), slot.rows, slot.cols);
    } catch (const std::bad_alloc&) {
      fail(rapt::ErrorCode::kOutOfMemory, file, ": no memory for the ", slot.rows, " x ", slot.cols,
           " elements of ", tensors[i].name);
    }
    const int64_t strip_rows = std::max<int64_t>(1, kStripElems / slot.cols);
    for (int64_t row = 0; row < slot.rows; row += strip_rows)
      strips.push_back({slot.target, &tensors[i], row, std::min(row + strip_rows, slot.rows)});
  }
  const auto processors = static_cast<int32_t>(std::thread::hardware_concurrency());
  const int32_t wanted = options.num_threads > 0 ? options.num_threads : std::max(1, processors);
  load_strips(strips, std::min(wanted, static_cast<int32_t>(strips.size())));
}

}  // namespace llm
