#include "step_tensors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace rapt_tool {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw rapt::Error(rapt::ErrorCode::kInvalidArgument, message);
}

uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void store(HostTensor& tensor, int64_t i, float value) {
  switch (tensor.dtype()) {
    case rapt::DType::kFloat32:
      reinterpret_cast<float*>(tensor.data())[i] = value;
      return;
    case rapt::DType::kFloat16: {
      const _Float16 half = static_cast<_Float16>(value);
      std::memcpy(tensor.data() + 2 * i, &half, 2);
      return;
    }
    default: {
      const uint16_t bits = to_bfloat16(value);
      std::memcpy(tensor.data() + 2 * i, &bits, 2);
    }
  }
}

// All bits set is NaN in every floating-point type.
HostTensor poisoned(rapt::DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor(dtype, std::move(shape));
  std::memset(tensor.data(), 0xff, tensor.bytes());
  return tensor;
}

std::vector<int32_t> starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

// Makes tensors by name: from the step's file if it names one, else by drawing.
class Source {
 public:
  explicit Source(const Step& step) : step_(step), generator_(step.seed) {}

  template <typename Draw>
  HostTensor make(const std::string& name, rapt::DType dtype, std::vector<int64_t> shape,
                  Draw draw) {
    known_.insert(name);
    if (auto file = step_.tensors.find(name); file != step_.tensors.end()) {
      HostTensor tensor = load_tensor(file->second, dtype);
      if (tensor.shape() != shape)
        refuse("tensor " + name + " in " + file->second + " is " + tensor.view().describe() +
               ": the step needs " + HostTensor(dtype, shape).view().describe());
      return tensor;
    }
    HostTensor tensor(dtype, std::move(shape));
    const int64_t elements = tensor.num_elements();
    for (int64_t i = 0; i < elements; i++) store(tensor, i, draw(generator_));
    return tensor;
  }

  std::mt19937_64& generator() { return generator_; }

  void finish() const {
    for (const auto& [name, file] : step_.tensors)
      if (!known_.contains(name))
        refuse("step.tensors." + name + " is no tensor that this step's spec reads");
  }

 private:
  const Step& step_;
  std::mt19937_64 generator_;
  std::set<std::string> known_;
};

void make_mask(const Step& step, Source& source, StepTensors& tensors) {
  const int64_t bytes = rapt::custom_mask_bytes(tensors.batch(step));
  if (step.tensors.contains("custom_mask")) {
    tensors.custom_mask =
        source.make("custom_mask", rapt::DType::kUInt8, {bytes}, [](auto&) { return 0.f; });
    return;
  }
  tensors.custom_mask = HostTensor(rapt::DType::kUInt8, {bytes});
  std::bernoulli_distribution one(step.custom_mask_density);
  for (int64_t i = 0; i < bytes; i++) {
    int byte = 0;
    for (int bit = 0; bit < 8; bit++) byte |= one(source.generator()) << bit;
    tensors.custom_mask.data()[i] = static_cast<std::byte>(byte);
  }
}

// Deals the pool's pages in random order and names every token's slot.
void make_cache(const Step& step, Source& source, StepTensors& tensors) {
  const int64_t page_size = step.spec.page_size;
  int64_t num_pages = 0, width = 1;
  for (int32_t length : step.kv_len) {
    const int64_t pages = (length + page_size - 1) / page_size;
    num_pages += pages;
    width = std::max(width, pages);
  }
  tensors.geometry = rapt::KvCacheGeometry::of(step.spec, std::max<int64_t>(num_pages, 1),
                                               step.shape, step.layout);
  tensors.pool = poisoned(rapt::DType::kUInt8, {tensors.geometry.total_bytes()});
  std::vector<int32_t> order(num_pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), source.generator());
  const int64_t requests = static_cast<int64_t>(step.kv_len.size());
  tensors.page_table = poisoned(rapt::DType::kInt32, {requests, width});
  tensors.slot_mapping = HostTensor(rapt::DType::kInt64, {step.num_kv_rows()});
  auto* table = reinterpret_cast<int32_t*>(tensors.page_table.data());
  auto* slots = reinterpret_cast<int64_t*>(tensors.slot_mapping.data());
  int64_t next = 0, row = 0;
  for (int64_t b = 0; b < requests; b++)
    for (int64_t token = 0; token < step.kv_len[b]; token++) {
      if (token % page_size == 0) table[b * width + token / page_size] = order[next++];
      slots[row++] = table[b * width + token / page_size] * page_size + token % page_size;
    }
}

// Keys [begin, end) that query i of request b sees.
std::pair<int64_t, int64_t> keys_of(const Step& step, size_t b, int64_t i) {
  const rapt::Window band = step.spec.visible_band();
  const int64_t keys = step.kv_len[b], p = i + keys - step.query_len[b];
  const int64_t begin = band.left == -1 ? 0 : std::max<int64_t>(p - band.left, 0);
  const int64_t end = band.right == -1 ? keys : std::min(p + band.right + 1, keys);
  return {begin, std::max(begin, end)};
}

}  // namespace

rapt::Batch StepTensors::batch(const Step& step) const {
  rapt::Batch batch{.query_start = query_start, .kv_len = step.kv_len};
  if (step.spec.is_paged()) {
    batch.page_table = page_table.view();
    batch.num_pages = geometry.num_pages;
  } else {
    batch.kv_start = kv_start;
  }
  return batch;
}

StepTensors make_tensors(const Step& step) {
  const rapt::AttentionSpec& spec = step.spec;
  const int64_t tokens = step.num_tokens(), rows = step.num_kv_rows();
  const int64_t query_heads = spec.num_query_heads, kv_heads = spec.num_kv_heads;
  auto normal = [d = std::normal_distribution<float>()](auto& random) mutable { return d(random); };
  Source source(step);
  StepTensors tensors;
  tensors.query_start = starts_of(step.query_len);
  tensors.kv_start = starts_of(step.kv_len);
  tensors.q = source.make("q", spec.dtype, {tokens, query_heads, spec.head_dim_qk}, normal);
  tensors.k = source.make("k", spec.dtype, {rows, kv_heads, spec.head_dim_qk}, normal);
  tensors.v = source.make("v", spec.dtype, {rows, kv_heads, spec.dim_vo()}, normal);
  tensors.out = poisoned(spec.dtype, {tokens, query_heads, spec.dim_vo()});
  tensors.lse = poisoned(rapt::DType::kFloat32, {query_heads, tokens});
  if (spec.is_paged()) make_cache(step, source, tensors);
  if (spec.alibi)
    tensors.alibi_slopes = source.make(
        "alibi_slopes", rapt::DType::kFloat32, {query_heads},
        [head = 0, query_heads](auto&) mutable { return std::exp2(-8.f * ++head / query_heads); });
  if (spec.sinks)
    tensors.sinks = source.make("sinks", rapt::DType::kFloat32, {query_heads}, normal);
  if (spec.custom_mask) make_mask(step, source, tensors);
  if (spec.kv_scales != rapt::KvScales::kNone) {
    const int64_t scales = spec.kv_scales == rapt::KvScales::kPerHead ? kv_heads : 1;
    auto near_one = [](auto& random) {
      return std::uniform_real_distribution<float>(0.5f, 2.f)(random);
    };
    tensors.k_scale = source.make("k_scale", rapt::DType::kFloat32, {scales}, near_one);
    tensors.v_scale = source.make("v_scale", rapt::DType::kFloat32, {scales}, near_one);
  }
  source.finish();
  return tensors;
}

int64_t visible_pairs(const Step& step) {
  int64_t pairs = 0;
  for (size_t b = 0; b < step.kv_len.size(); b++)
    for (int64_t i = 0; i < step.query_len[b]; i++) {
      const auto [begin, end] = keys_of(step, b, i);
      pairs += end - begin;
    }
  return pairs;
}

int64_t visible_keys(const Step& step) {
  int64_t keys = 0;
  for (size_t b = 0; b < step.kv_len.size(); b++) {
    int64_t reached = 0;  // both ends of a query's range move up with the query
    for (int64_t i = 0; i < step.query_len[b]; i++) {
      const auto [begin, end] = keys_of(step, b, i);
      keys += std::max<int64_t>(end - std::max(begin, reached), 0);
      reached = std::max(reached, end);
    }
  }
  return keys;
}

}  // namespace rapt_tool
