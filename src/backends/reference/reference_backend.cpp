#include "backends/reference/reference_backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "cache/write_kv.hpp"
#include "core/check.hpp"
#include "core/elements.hpp"
#include "core/strides.hpp"

namespace rapt {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct ReferencePlan final : BackendPlan {
  struct Request {
    int64_t query_start, query_len, kv_len;
    const int32_t* pages;  // paged: its row of the page table
    int64_t kv_start;      // ragged: its first row of k and v
    int64_t mask_bit;      // its first bit of the custom mask
  };
  std::vector<Request> requests;
  int64_t max_kv_len = 0;

  std::string describe() const override {
    return concat("reference: ", shape.num_requests, " requests, ", shape.num_tokens,
                  " query tokens, up to ", max_kv_len, " keys each, fp64, one pass per row");
  }
};

// What one row needs while it is computed.
struct Scratch {
  std::vector<double> q, k;    // [Dqk]
  std::vector<double> v, out;  // [Dvo]
  std::vector<double> scores;  // [kv_len]: of the keys it sees
  std::vector<int64_t> keys;   // and which those are
};

// One layer's run, row by row. The offsets of q, k, v and out are in elements.
class Rows {
 public:
  Rows(const AttentionSpec& spec, const RunArgs& args)
      : spec_(spec), args_(args), band_(spec.visible_band()) {}

  // out[token, head, :] and lse[head, token] of query i of the request.
  void compute(const ReferencePlan::Request& request, int64_t i, int64_t head,
               Scratch& scratch) const {
    const int64_t token = request.query_start + i;
    const int64_t kv_head = head / spec_.group();
    const int64_t position = i + request.kv_len - request.query_len;
    load_elements(args_.q.data, args_.q.dtype,
                  token * stride_of(args_.q, 0) + head * stride_of(args_.q, 1), scratch.q);

    scratch.keys.clear();
    scratch.scores.clear();
    for (int64_t j = 0; j < request.kv_len; j++) {
      if (!sees(request, i, position, j)) continue;
      scratch.keys.push_back(j);
      scratch.scores.push_back(score(request, position, j, head, kv_head, scratch));
    }

    const double sink = spec_.sinks ? at(args_.sinks, head) : kMinusInfinity;
    double largest = sink;
    for (double s : scratch.scores)
      if (!(s <= largest)) largest = s;  // takes a NaN up too: it must reach the output

    std::fill(scratch.out.begin(), scratch.out.end(), 0.0);
    double denominator = 0;
    if (largest != kMinusInfinity) {
      denominator = sink == largest ? 1 : std::exp(sink - largest);  // inf - inf would be NaN
      for (size_t n = 0; n < scratch.keys.size(); n++) {
        const double weight = std::exp(scratch.scores[n] - largest);
        denominator += weight;
        load_elements(args_.v.data, args_.v.dtype,
                      kv_row(args_.v, request, scratch.keys[n], kv_head), scratch.v);
        for (int64_t d = 0; d < spec_.dim_vo(); d++) scratch.out[d] += weight * scratch.v[d];
      }
    }
    store(token, head, denominator == 0 ? 0.0 : kv_scale(args_.v_scale, kv_head) / denominator,
          scratch.out);
    if (spec_.needs_lse) {
      const int64_t offset = head * stride_of(args_.lse, 0) + token * stride_of(args_.lse, 1);
      store_element(args_.lse.data, DType::kFloat32, offset,
                    static_cast<float>(largest + std::log(denominator)));
    }
  }

 private:
  // scale * (q . k) -> softcap -> ALiBi.
  double score(const ReferencePlan::Request& request, int64_t position, int64_t j, int64_t head,
               int64_t kv_head, Scratch& scratch) const {
    load_elements(args_.k.data, args_.k.dtype, kv_row(args_.k, request, j, kv_head), scratch.k);
    double dot = 0;
    for (int64_t d = 0; d < spec_.head_dim_qk; d++) dot += scratch.q[d] * scratch.k[d];
    double s = spec_.resolved_scale() * kv_scale(args_.k_scale, kv_head) * dot;
    if (spec_.softcap > 0) s = spec_.softcap * std::tanh(s / spec_.softcap);
    if (spec_.alibi)
      s -= at(args_.alibi_slopes, head) * static_cast<double>(std::abs(position - j));
    return s;
  }

  // Whether query i, which stands at `position`, sees key j. Written out rather than taken from
  // problem/visibility.hpp: what the other backends share is checked against this.
  bool sees(const ReferencePlan::Request& request, int64_t i, int64_t position, int64_t j) const {
    if (band_.left != -1 && j < position - band_.left) return false;
    if (band_.right != -1 && j > position + band_.right) return false;
    if (!spec_.custom_mask) return true;
    const int64_t bit = request.mask_bit + i * request.kv_len + j;
    return static_cast<const uint8_t*>(args_.custom_mask.data)[bit / 8] >> (bit % 8) & 1;
  }

  // Offset of key j's row in k, or of its value row in v: through the page table, or ragged.
  int64_t kv_row(const TensorView& tensor, const ReferencePlan::Request& request, int64_t j,
                 int64_t kv_head) const {
    if (!spec_.is_paged())
      return (request.kv_start + j) * stride_of(tensor, 0) + kv_head * stride_of(tensor, 1);
    const int64_t page = request.pages[j / spec_.page_size];
    return page * stride_of(tensor, 0) + j % spec_.page_size * stride_of(tensor, 1) +
           kv_head * stride_of(tensor, 2);
  }

  void store(int64_t token, int64_t head, double factor, const std::vector<double>& out) const {
    const int64_t row = token * stride_of(args_.out, 0) + head * stride_of(args_.out, 1);
    for (int64_t d = 0; d < spec_.dim_vo(); d++)
      store_element(args_.out.data, args_.out.dtype, row + d, static_cast<float>(out[d] * factor));
  }

  // Entry `index` of an fp32 vector.
  static double at(const TensorView& vector, int64_t index) {
    return static_cast<const float*>(vector.data)[index * stride_of(vector, 0)];
  }

  // One scale for all heads is a vector of one entry; without scales, 1.
  static double kv_scale(const TensorView& scale, int64_t kv_head) {
    return scale.has_value() ? at(scale, kv_head) : 1.0;
  }

  const AttentionSpec& spec_;
  const RunArgs& args_;
  Window band_;
};

}  // namespace

ReferenceBackend::ReferenceBackend(const AttentionSpec& spec, const BackendEnvironment& environment)
    : spec_(spec), parallel_for_(environment.parallel_for), num_threads_(environment.num_threads) {}

std::unique_ptr<BackendPlan> ReferenceBackend::make_plan() const {
  return std::make_unique<ReferencePlan>();
}

void ReferenceBackend::plan(const Batch& batch, BackendPlan& backend_plan) const {
  auto& plan = static_cast<ReferencePlan&>(backend_plan);
  plan.requests.clear();
  plan.max_kv_len = 0;
  const auto* table = static_cast<const int32_t*>(batch.page_table.data);
  int64_t mask_bit = 0;
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    const int64_t query_len = batch.query_len(b), kv_len = batch.kv_len[b];
    plan.requests.push_back({
        .query_start = batch.query_start[b],
        .query_len = query_len,
        .kv_len = kv_len,
        .pages = spec_.is_paged() ? table + b * stride_of(batch.page_table, 0) : nullptr,
        .kv_start = spec_.is_paged() ? 0 : batch.kv_start[b],
        .mask_bit = mask_bit,
    });
    plan.max_kv_len = std::max(plan.max_kv_len, kv_len);
    if (spec_.custom_mask) mask_bit += query_len * kv_len;
  }
}

void ReferenceBackend::run(const BackendPlan& backend_plan, const RunArgs& args) const {
  const auto& plan = static_cast<const ReferencePlan&>(backend_plan);
  const int64_t num_tokens = plan.shape.num_tokens;
  if (num_tokens == 0) return;
  // Allocated here, where running out of memory can still be thrown: tasks never throw.
  const auto num_tasks = static_cast<int32_t>(std::min<int64_t>(num_threads_, num_tokens));
  std::vector<Scratch> scratches(num_tasks);
  for (Scratch& scratch : scratches) {
    scratch.q.resize(spec_.head_dim_qk);
    scratch.k.resize(spec_.head_dim_qk);
    scratch.v.resize(spec_.dim_vo());
    scratch.out.resize(spec_.dim_vo());
    scratch.scores.reserve(plan.max_kv_len);
    scratch.keys.reserve(plan.max_kv_len);
  }
  const Rows rows(spec_, args);
  parallel_for_(num_tasks, [&](int32_t task) {
    // Tokens are dealt round robin, so that causal rows of all lengths fall to every task.
    int64_t token = 0;
    for (const ReferencePlan::Request& request : plan.requests)
      for (int64_t i = 0; i < request.query_len; i++, token++)
        if (token % num_tasks == task)
          for (int64_t head = 0; head < spec_.num_query_heads; head++)
            rows.compute(request, i, head, scratches[task]);
  });
}

void ReferenceBackend::write_kv(const WriteKvArgs& args) const {
  rapt::write_kv(args, parallel_for_, num_threads_);
}

}  // namespace rapt
