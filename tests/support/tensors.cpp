#include "support/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "support/element.hpp"

namespace rapt::test {
namespace {

constexpr uint8_t kPoison = 0xff;    // NaN in fp32, fp16 and bf16
constexpr uint8_t kSentinel = 0xa5;  // of what must not be written

GuardedBuffer poisoned(int64_t bytes) {
  GuardedBuffer buffer(static_cast<size_t>(bytes));
  buffer.fill(kPoison);
  return buffer;
}

GuardedBuffer copy_of(const void* data, size_t bytes) {
  GuardedBuffer buffer(bytes);
  if (bytes) std::memcpy(buffer.data(), data, bytes);
  return buffer;
}

template <typename T>
GuardedBuffer copy_of(const std::vector<T>& values) {
  return copy_of(values.data(), values.size() * sizeof(T));
}

// Distinct ids for every manager page any request needs, shuffled unless told otherwise.
std::vector<int64_t> manager_ids(const Layout& layout, int64_t count, uint64_t seed) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  if (layout.permuted_pages)
    for (int64_t i = count - 1; i > 0; i--)
      std::swap(ids[i], ids[static_cast<int64_t>(uniform_of(seed, 77, i) * (i + 1))]);
  return ids;
}

TensorView vector_view(const GuardedBuffer& buffer, DType dtype, size_t count) {
  return count ? TensorView::contiguous(buffer.data(), dtype, {static_cast<int64_t>(count)})
               : TensorView{};
}

}  // namespace

Tensors::Tensors(const Problem& problem) : problem_(problem), values_(values_of(problem)) {
  const AttentionSpec& spec = problem_.spec;
  query_start_.assign(values_.query_start.begin(), values_.query_start.end());
  for (const RequestLengths& request : problem_.requests) kv_len_.push_back(request.kv_len);
  lay_out_queries();
  if (spec.is_paged())
    lay_out_pages();
  else
    lay_out_ragged();
  poison_keys();
  if (!problem_.layout.write_kv || !spec.is_paged()) fill_keys();

  // Bit n of the packed mask is bit n % 8 of byte n / 8; bits past the last are set.
  std::vector<uint8_t> packed((values_.mask.size() + 7) / 8, 0xff);
  for (size_t n = 0; n < values_.mask.size(); n++)
    if (!values_.mask[n]) packed[n / 8] &= static_cast<uint8_t>(~(1u << n % 8));
  mask_ = copy_of(packed);
  sinks_ = copy_of(values_.sinks);
  slopes_ = copy_of(values_.alibi_slopes);
  k_scale_ = copy_of(values_.k_scale);
  v_scale_ = copy_of(values_.v_scale);
}

void Tensors::lay_out_queries() {
  const AttentionSpec& spec = problem_.spec;
  const Layout& layout = problem_.layout;
  const int64_t hq = spec.num_query_heads, hkv = spec.num_kv_heads;
  const int64_t dqk = spec.head_dim_qk, dvo = spec.dim_vo();
  const int64_t element = size_of(spec.dtype);
  const int64_t tokens = problem_.num_tokens(), rows = tokens + layout.padding_rows;

  const int64_t q_head = dqk + layout.q_head_pad;
  const int64_t q_token = hq * q_head + (layout.packed_qkv ? hkv * (dqk + dvo) : 0);
  q_ = poisoned(rows * q_token * element);
  q_view_ = TensorView::strided(q_.data(), spec.dtype, {rows, hq, dqk}, {q_token, q_head, 1});
  const float* value = values_.q.data();
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t h = 0; h < hq; h++)
      for (int64_t d = 0; d < dqk; d++)
        store(spec.dtype, q_.data() + (t * q_token + h * q_head + d) * element, *value++);

  const int64_t out_head = dvo + layout.out_head_pad;
  out_ = GuardedBuffer(rows * hq * out_head * element);
  out_view_ =
      TensorView::strided(out_.data(), spec.dtype, {rows, hq, dvo}, {hq * out_head, out_head, 1});
  if (!spec.needs_lse) return;
  lse_ = GuardedBuffer(hq * rows * sizeof(float));
  lse_view_ = TensorView::contiguous(lse_.data(), DType::kFloat32, {hq, rows});
}

// Strides from the logical shapes as the contract names them, not from KvCacheGeometry.
void Tensors::lay_out_pages() {
  const AttentionSpec& spec = problem_.spec;
  const Layout& layout = problem_.layout;
  const DType dtype = problem_.kv_dtype();
  const int64_t page_size = spec.page_size, hkv = spec.num_kv_heads;
  const int64_t dqk = spec.head_dim_qk, dvo = spec.dim_vo();
  const int64_t layers = std::max(layout.num_layers, 1), ratio = layout.manager_ratio;

  // Tables: each request's manager pages, then their kernel pages.
  int64_t width = 0, managers = 0;
  auto pages_of = [&](int64_t b) { return (kv_len_[b] + page_size - 1) / page_size; };
  const auto requests = static_cast<int64_t>(kv_len_.size());
  for (int64_t b = 0; b < requests; b++) {
    width = std::max(width, pages_of(b));
    managers += (pages_of(b) + ratio - 1) / ratio;
  }
  const std::vector<int64_t> ids = manager_ids(layout, managers, problem_.seed);
  num_pages_ = layout.first_page + managers * ratio + layout.unused_pages;
  const int64_t columns = width + layout.table_pad;
  table_ = GuardedBuffer(requests * columns * sizeof(int32_t));
  for (int64_t b = 0, next = 0; b < requests; b++) {
    int32_t* row = table_.as<int32_t>() + b * columns;
    for (int64_t i = 0; i < columns; i++) {
      row[i] = layout.table_pad_id.value_or(i % 2 ? -1 : 1 << 30);
      if (i < pages_of(b))
        row[i] =
            static_cast<int32_t>(layout.first_page + ids[next + i / ratio] * ratio + i % ratio);
    }
    next += (pages_of(b) + ratio - 1) / ratio;
  }
  table_view_ = TensorView::contiguous(table_.data(), DType::kInt32, {requests, columns});

  // Rows of one token of one head, and where a page's (or the pool's) values begin.
  const bool packed = layout.shape == KvShape::kPacked;
  const bool apart = layout.shape == KvShape::kKvPages;
  const int64_t k_row = packed ? dqk + dvo : dqk, v_row = packed ? dqk + dvo : dvo;
  const int64_t k_block = page_size * hkv * dqk, v_block = page_size * hkv * dvo;
  const int64_t k_page = layers * (apart ? k_block : k_block + v_block);
  const int64_t v_page = layers * (apart ? v_block : k_block + v_block);
  const int64_t k_layer = layout.layer * (k_page / layers);
  const int64_t v_layer = layout.layer * (v_page / layers);
  const int64_t v_base = packed ? dqk : apart ? num_pages_ * k_page : k_block;
  const bool nhd = layout.order == KvLayout::kNHD;
  const int64_t element = size_of(dtype);
  keys_ = GuardedBuffer(num_pages_ * layers * (k_block + v_block) * element);
  if (layout.first_page == 0) keys_.fill(kPoison);  // layers and rows between, too
  if (!apart) first_key_byte_ = static_cast<size_t>(layout.first_page * k_page * element);
  auto view = [&](int64_t base, int64_t page, int64_t row, int64_t dim) {
    return TensorView::strided(keys_.data() + base * element, dtype,
                               {num_pages_, page_size, hkv, dim},
                               {page, nhd ? hkv * row : row, nhd ? row : page_size * row, 1});
  };
  k_view_ = view(k_layer, k_page, k_row, dqk);
  v_view_ = view(v_base + v_layer, v_page, v_row, dvo);
}

void Tensors::lay_out_ragged() {
  const AttentionSpec& spec = problem_.spec;
  const int64_t hkv = spec.num_kv_heads, dqk = spec.head_dim_qk, dvo = spec.dim_vo();
  const int64_t element = size_of(spec.dtype);
  kv_start_ = {0};
  for (int32_t kv_len : kv_len_)
    kv_start_.push_back(kv_start_.back() + kv_len + problem_.layout.kv_gap);
  const int64_t rows = kv_start_.back(), row = hkv * (dqk + dvo);  // a token's keys, then values
  keys_ = poisoned(rows * row * element);
  k_view_ = TensorView::strided(keys_.data(), spec.dtype, {rows, hkv, dqk}, {row, dqk, 1});
  v_view_ = TensorView::strided(keys_.data() + hkv * dqk * element, spec.dtype, {rows, hkv, dvo},
                                {row, dvo, 1});
}

std::byte* Tensors::key_at(const TensorView& view, size_t b, int64_t token, int64_t head) const {
  const auto element = static_cast<int64_t>(size_of(view.dtype));
  std::byte* base = static_cast<std::byte*>(view.data);
  if (!problem_.spec.is_paged())
    return base + ((kv_start_[b] + token) * view.stride[0] + head * view.stride[1]) * element;
  const int64_t page_size = problem_.spec.page_size;
  const int64_t page = table_.as<int32_t>()[b * table_view_.shape[1] + token / page_size];
  return base +
         (page * view.stride[0] + token % page_size * view.stride[1] + head * view.stride[2]) *
             element;
}

void Tensors::poison_keys() {
  const bool paged = problem_.spec.is_paged();
  auto poison = [&](const TensorView& view, float value) {
    if (std::isnan(value) && problem_.layout.first_page == 0) return;  // it is all NaN already
    const int64_t element = size_of(view.dtype);
    std::byte* base = static_cast<std::byte*>(view.data);
    const int64_t per_row = paged ? view.shape[1] : 1;  // a ragged row is a page of one token
    const int64_t heads = view.shape[view.rank - 2], dim = view.shape[view.rank - 1];
    for (int64_t row = problem_.layout.first_page; row < view.shape[0]; row++)
      for (int64_t t = 0; t < per_row; t++)
        for (int64_t h = 0; h < heads; h++)
          for (int64_t d = 0; d < dim; d++)
            store(view.dtype,
                  base + (row * view.stride[0] + (paged ? t * view.stride[1] : 0) +
                          h * view.stride[view.rank - 2] + d) *
                             element,
                  value);
  };
  poison(k_view_, problem_.layout.unread_k);
  poison(v_view_, problem_.layout.unread_v);
}

void Tensors::fill_keys() {
  const AttentionSpec& spec = problem_.spec;
  auto fill = [&](const TensorView& view, const std::vector<float>& values, int64_t dim) {
    const int64_t element = size_of(view.dtype), heads = spec.num_kv_heads;
    for (size_t b = 0; b < kv_len_.size(); b++)
      for (int64_t t = 0; t < kv_len_[b]; t++) {
        const int64_t key = values_.kv_start[b] + t;
        if (!values_.reachable[key]) continue;
        for (int64_t h = 0; h < heads; h++)
          for (int64_t d = 0; d < dim; d++)
            store(view.dtype, key_at(view, b, t, h) + d * element,
                  values[(key * heads + h) * dim + d]);
      }
  };
  fill(k_view_, values_.k, spec.head_dim_qk);
  fill(v_view_, values_.v, spec.dim_vo());
}

Tensors::NewKeys Tensors::new_keys() {
  const AttentionSpec& spec = problem_.spec;
  const int64_t keys = problem_.num_keys(), hkv = spec.num_kv_heads;
  // write_kv divides by the scale, so that what it is given is the cache's value times the scale.
  auto elements = [&](const std::vector<float>& values, const std::vector<float>& scales,
                      int64_t dim) {
    GuardedBuffer buffer(values.size() * size_of(spec.dtype));
    for (size_t i = 0; i < values.size(); i++) {
      const size_t head = i / dim % hkv;
      const float scale = scales.empty() ? 1 : scales.size() == 1 ? scales[0] : scales[head];
      store(spec.dtype, buffer.data() + i * size_of(spec.dtype), values[i] * scale);
    }
    return buffer;
  };
  NewKeys made;
  made.k = elements(values_.k, values_.k_scale, spec.head_dim_qk);
  made.v = elements(values_.v, values_.v_scale, spec.dim_vo());
  std::vector<int64_t> slots;
  for (size_t b = 0; b < kv_len_.size(); b++)
    for (int64_t t = 0; t < kv_len_[b]; t++) {
      const int64_t page = table_.as<int32_t>()[b * table_view_.shape[1] + t / spec.page_size];
      const bool reachable = values_.reachable[values_.kv_start[b] + t];
      slots.push_back(reachable ? page * spec.page_size + t % spec.page_size : -1);
    }
  made.slots = copy_of(slots);
  made.args = {
      .k = TensorView::contiguous(made.k.data(), spec.dtype, {keys, hkv, spec.head_dim_qk}),
      .v = TensorView::contiguous(made.v.data(), spec.dtype, {keys, hkv, spec.dim_vo()}),
      .slot_mapping = TensorView::contiguous(made.slots.data(), DType::kInt64, {keys}),
      .cache = {.k = k_view_, .v = v_view_},
      .k_scale = vector_view(k_scale_, DType::kFloat32, values_.k_scale.size()),
      .v_scale = vector_view(v_scale_, DType::kFloat32, values_.v_scale.size())};
  return made;
}

void Tensors::write_cache(const Attention& attention, DeviceMirror& mirror) {
  if (!writes_cache()) return;
  const NewKeys made = new_keys();
  for (const GuardedBuffer* buffer : {&made.k, &made.v, &made.slots}) mirror.put(*buffer);
  WriteKvArgs args = made.args;
  for (TensorView* view : {&args.k, &args.v, &args.slot_mapping, &args.cache.k, &args.cache.v,
                           &args.k_scale, &args.v_scale})
    *view = mirror.view(*view);
  attention.write_kv(args);
}

void Tensors::put(DeviceMirror& mirror) const {
  for (const GuardedBuffer* buffer :
       {&q_, &table_, &mask_, &sinks_, &slopes_, &k_scale_, &v_scale_})
    mirror.put(*buffer);
  mirror.put(keys_.data(), keys_.size(), first_key_byte_);
}

Batch Tensors::batch(const DeviceMirror& mirror, bool table_on_device) const {
  Batch batch = this->batch();
  if (table_on_device) batch.page_table = mirror.view(batch.page_table);
  return batch;
}

RunArgs Tensors::args(const Plan& plan, DeviceMirror& mirror) {
  RunArgs args = this->args(plan);
  for (const GuardedBuffer* buffer : {&out_, &lse_, &workspace_}) mirror.put(*buffer);
  for (TensorView* view : {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.alibi_slopes,
                           &args.sinks, &args.custom_mask, &args.k_scale, &args.v_scale})
    *view = mirror.view(*view);
  args.workspace.data = mirror.address(args.workspace.data);
  return args;
}

void Tensors::fetch(const DeviceMirror& mirror) {
  for (GuardedBuffer* buffer : {&out_, &lse_}) mirror.fetch(*buffer);
  mirror.check_bands();
}

Batch Tensors::batch() const {
  return {.query_start = query_start_,
          .kv_len = kv_len_,
          .page_table = table_view_,
          .num_pages = num_pages_,
          .kv_start = kv_start_};
}

SelectOptions Tensors::select_options(const Backend& backend) const {
  SelectOptions options;
  options.backend = backend.name;
  if (problem_.layout.manager_ratio > 1)
    options.manager_page_size = problem_.layout.manager_ratio * problem_.spec.page_size;
  return options;
}

RunArgs Tensors::args(const Plan& plan) {
  out_.fill(kSentinel);
  lse_.fill(kSentinel);
  workspace_ = GuardedBuffer(plan.workspace_bytes(), kWorkspaceAlignment);
  workspace_.fill(kPoison);
  RunArgs args{.q = q_view_, .k = k_view_, .v = v_view_, .out = out_view_, .lse = lse_view_};
  args.alibi_slopes = vector_view(slopes_, DType::kFloat32, values_.alibi_slopes.size());
  args.sinks = vector_view(sinks_, DType::kFloat32, values_.sinks.size());
  if (problem_.spec.custom_mask)
    args.custom_mask =
        TensorView::contiguous(mask_.data(), DType::kUInt8, {static_cast<int64_t>(mask_.size())});
  args.k_scale = vector_view(k_scale_, DType::kFloat32, values_.k_scale.size());
  args.v_scale = vector_view(v_scale_, DType::kFloat32, values_.v_scale.size());
  args.workspace = {workspace_.data(), workspace_.size()};
  return args;
}

Outcome Tensors::collect() const {
  const AttentionSpec& spec = problem_.spec;
  const int64_t tokens = problem_.num_tokens();
  Outcome outcome;
  // Takes the rows of a view that the run owns; every other byte must be the sentinel still.
  auto take = [&](const char* name, const GuardedBuffer& buffer, const TensorView& view,
                  int64_t size0, int64_t size1, int64_t size2, std::vector<float>& into) {
    std::vector<bool> owned(buffer.size(), false);
    const int64_t element = size_of(view.dtype);
    const int64_t stride2 = view.rank == 3 ? view.stride[2] : 0;
    for (int64_t a = 0; a < size0; a++)
      for (int64_t b = 0; b < size1; b++)
        for (int64_t c = 0; c < size2; c++) {
          const int64_t at = (a * view.stride[0] + b * view.stride[1] + c * stride2) * element;
          into.push_back(load(view.dtype, buffer.data() + at));
          std::fill_n(owned.begin() + at, element, true);
        }
    for (size_t i = 0; i < buffer.size() && outcome.fault.empty(); i++)
      if (!owned[i] && buffer.data()[i] != std::byte{kSentinel})
        outcome.fault = std::string(name) + ": byte " + std::to_string(i) +
                        ", which belongs to no row, was written";
    if (!buffer.slack_holds(kSentinel)) outcome.fault = std::string(name) + ": written outside";
  };
  take("out", out_, out_view_, tokens, spec.num_query_heads, spec.dim_vo(), outcome.out);
  if (spec.needs_lse) take("lse", lse_, lse_view_, spec.num_query_heads, tokens, 1, outcome.lse);
  if (!workspace_.slack_holds(kPoison)) outcome.fault = "workspace: written outside";
  return outcome;
}

Outcome Placed::collect() {
  context_.synchronize();
  tensors_.fetch(mirror_);
  return tensors_.collect();
}

Outcome run(Tensors& tensors, const Backend& backend) {
  Context& context = context_of(backend);
  const Attention attention(context, tensors.problem().spec, tensors.select_options(backend));
  Placed placed(tensors, backend);
  const Plan plan = attention.plan(placed.batch());
  placed.write_cache(attention);
  attention.run(plan, placed.args(plan));
  Outcome outcome = placed.collect();
  outcome.plan = plan.describe();
  return outcome;
}

Outcome run(const Problem& problem, const Backend& backend) {
  Tensors tensors(problem);
  return run(tensors, backend);
}

}  // namespace rapt::test
