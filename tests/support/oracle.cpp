#include "support/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>

#include "support/element.hpp"

namespace rapt::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kWorthThreads = 1e8;  // products of scores

// One row of queries against one request's keys, in the arithmetic of Real.
template <typename Real>
struct Row {
  std::vector<int64_t> keys;  // the visible ones
  std::vector<Real> scores;   // of those
  std::vector<Real> out;      // [Dvo]
  Real lse;
};

// Four partial sums, so that fp32 rounds as a short vector would.
template <typename Real>
Real dot(const float* a, const float* b, int64_t size) {
  Real sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4)
    for (int64_t lane = 0; lane < 4; lane++)
      sums[lane] += static_cast<Real>(a[i + lane]) * static_cast<Real>(b[i + lane]);
  for (; i < size; i++) sums[0] += static_cast<Real>(a[i]) * static_cast<Real>(b[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

class Oracle {
 public:
  Oracle(const Problem& problem, const Values& values)
      : spec_(problem.spec), values_(values), dtype_(problem.spec.dtype) {
    const int64_t dqk = spec_.head_dim_qk, dvo = spec_.dim_vo();
    for (size_t at = 0; at < values.k.size(); at += dqk)
      k_norm_.push_back(std::sqrt(dot<double>(&values.k[at], &values.k[at], dqk)));
    for (size_t at = 0; at < values.v.size(); at += dvo) {
      float largest = 0;
      for (int64_t d = 0; d < dvo; d++) largest = std::max(largest, std::abs(values.v[at + d]));
      v_largest_.push_back(largest);
    }
  }

  // Fills row for query i of request b and query head h; `round_p` rounds probabilities.
  template <typename Real>
  void attend(size_t b, int64_t i, int64_t h, bool round_p, Row<Real>& row) {
    const int64_t query_len = values_.query_start[b + 1] - values_.query_start[b];
    const int64_t kv_len = values_.kv_start[b + 1] - values_.kv_start[b];
    const int64_t heads = spec_.num_query_heads, kv_heads = spec_.num_kv_heads;
    const int64_t dqk = spec_.head_dim_qk, dvo = spec_.dim_vo();
    const int64_t kv_head = h / (heads / kv_heads), p = i + kv_len - query_len;
    const float* q = &values_.q[((values_.query_start[b] + i) * heads + h) * dqk];
    const Real scale = static_cast<Real>(
        (spec_.scale ? static_cast<double>(*spec_.scale) : 1 / std::sqrt(double(dqk))) *
        of_head(values_.k_scale, kv_head));
    row.keys.clear();
    row.scores.clear();
    Real largest = -kInfinity;
    for (int64_t j = 0; j < kv_len; j++) {
      if (!position_sees(spec_, i, j, query_len, kv_len)) continue;
      if (spec_.custom_mask && !values_.mask[values_.mask_start[b] + i * kv_len + j]) continue;
      const float* k = &values_.k[((values_.kv_start[b] + j) * kv_heads + kv_head) * dqk];
      Real s = scale * dot<Real>(q, k, dqk);
      if (spec_.softcap != 0) s = spec_.softcap * std::tanh(s / spec_.softcap);
      if (spec_.alibi) s -= values_.alibi_slopes[h] * static_cast<Real>(std::abs(p - j));
      row.keys.push_back(j);
      row.scores.push_back(s);
      largest = std::max(largest, s);
    }
    const bool has_keys = !row.keys.empty();
    if (spec_.sinks) largest = std::max(largest, static_cast<Real>(values_.sinks[h]));
    row.out.assign(dvo, 0);
    row.lse = -kInfinity;
    if (!has_keys && !spec_.sinks) return;
    if (std::isinf(largest)) {  // an infinite sink takes all the weight; -inf and no key: none
      row.lse = largest;
      row.keys.clear();
      return;
    }
    Real sum = spec_.sinks ? std::exp(values_.sinks[h] - largest) : 0;
    for (Real s : row.scores) sum += std::exp(s - largest);
    row.lse = largest + std::log(sum);
    for (size_t n = 0; n < row.keys.size(); n++) {
      Real probability = std::exp(row.scores[n] - largest) / sum;
      if (round_p) probability = static_cast<Real>(round_to(dtype_, probability));
      const float* v = &values_.v[((values_.kv_start[b] + row.keys[n]) * kv_heads + kv_head) * dvo];
      for (int64_t d = 0; d < dvo; d++) row.out[d] += probability * static_cast<Real>(v[d]);
    }
    const Real v_scale = static_cast<Real>(of_head(values_.v_scale, kv_head));
    for (Real& x : row.out) x *= v_scale;
  }

  // The largest magnitude a row's scores go through, softcap or not, and its largest |v|.
  void magnitudes(size_t b, int64_t i, int64_t h, const Row<double>& row, double& score,
                  double& value) const {
    const int64_t heads = spec_.num_query_heads, kv_heads = spec_.num_kv_heads;
    const int64_t dqk = spec_.head_dim_qk, kv_head = h / (heads / kv_heads);
    const int64_t kv_len = values_.kv_start[b + 1] - values_.kv_start[b];
    const int64_t p = i + kv_len - (values_.query_start[b + 1] - values_.query_start[b]);
    const float* q = &values_.q[((values_.query_start[b] + i) * heads + h) * dqk];
    const double scale = std::abs(spec_.scale ? *spec_.scale : 1 / std::sqrt(double(dqk))) *
                         std::abs(of_head(values_.k_scale, kv_head)) *
                         std::sqrt(dot<double>(q, q, dqk));
    for (int64_t j : row.keys) {
      const int64_t key = (values_.kv_start[b] + j) * kv_heads + kv_head;
      double bound = scale * k_norm_[key];
      if (spec_.alibi) bound += std::abs(values_.alibi_slopes[h]) * double(std::abs(p - j));
      score = std::max(score, bound);
      value = std::max(value, v_largest_[key] * std::abs(of_head(values_.v_scale, kv_head)));
    }
    if (spec_.sinks && std::isfinite(values_.sinks[h]))
      score = std::max(score, std::abs(double(values_.sinks[h])));
  }

 private:
  static float of_head(const std::vector<float>& scales, int64_t kv_head) {
    if (scales.empty()) return 1;
    return scales.size() == 1 ? scales[0] : scales[kv_head];
  }

  const AttentionSpec& spec_;
  const Values& values_;
  DType dtype_;
  std::vector<double> k_norm_, v_largest_;  // [all keys, Hkv]: 2-norm of k, largest |v|
};

std::string place(const Problem& problem, int64_t token, int64_t head, int64_t dim) {
  size_t b = 0;
  while (token >= problem.requests[b].query_len) token -= problem.requests[b++].query_len;
  std::ostringstream text;
  text << "request " << b << " token " << token << " head " << head;
  if (dim >= 0) text << " dim " << dim;
  return text.str();
}

// 0 where both are the same NaN or infinity, infinite where only one is or they differ in kind.
double error_of(double got, double want) {
  if (std::isnan(got) || std::isnan(want))
    return std::isnan(got) == std::isnan(want) ? 0 : kInfinity;
  if (std::isinf(got) || std::isinf(want)) return got == want ? 0 : kInfinity;
  return std::abs(got - want);
}

}  // namespace

Expected expect(const Problem& problem, const Values& values) {
  const AttentionSpec& spec = problem.spec;
  const int64_t tokens = problem.num_tokens(), heads = spec.num_query_heads, dvo = spec.dim_vo();
  Expected expected;
  expected.out.resize(tokens * heads * dvo);
  expected.lse.resize(heads * tokens);
  Oracle oracle(problem, values);
  std::mutex mutex;
  double score = 0, value = 0, lse_error = 0;
  // Rows number, number + step, ... of all tokens' heads.
  const auto attend = [&](int64_t number, int64_t step) {
    Row<double> row;
    Row<float> low;
    double its_score = 0, its_value = 0, its_error = 0, its_lse_error = 0;
    int64_t token = 0;
    for (size_t b = 0; b < problem.requests.size(); b++)
      for (int64_t i = 0; i < problem.requests[b].query_len; i++, token++)
        for (int64_t h = 0; h < heads; h++) {
          if ((token * heads + h) % step != number) continue;
          oracle.attend<double>(b, i, h, false, row);
          oracle.attend<float>(b, i, h, true, low);
          oracle.magnitudes(b, i, h, row, its_score, its_value);
          for (int64_t d = 0; d < dvo; d++)
            its_error =
                std::max(its_error, std::abs(round_to(spec.dtype, low.out[d]) - row.out[d]));
          std::copy(row.out.begin(), row.out.end(), &expected.out[(token * heads + h) * dvo]);
          expected.lse[h * tokens + token] = row.lse;
          if (std::isfinite(row.lse))
            its_lse_error = std::max(its_lse_error, std::abs(low.lse - row.lse));
        }
    const std::lock_guard lock(mutex);
    score = std::max(score, its_score), value = std::max(value, its_value);
    lse_error = std::max(lse_error, its_lse_error);
    expected.lowprec_error = std::max(expected.lowprec_error, its_error);
  };
  const double cost = double(tokens) * double(problem.num_keys()) * double(heads * dvo);
  const int64_t num_threads = cost < kWorthThreads ? 1 : std::thread::hardware_concurrency();
  std::vector<std::jthread> threads;
  for (int64_t i = 1; i < num_threads; i++) threads.emplace_back(attend, i, num_threads);
  attend(0, num_threads);
  threads.clear();
  const double score_rounding = 4 * unit_roundoff(DType::kFloat32) * (score + 8);
  expected.out_bound =
      2 * expected.lowprec_error + unit_roundoff(spec.dtype) * value + score_rounding * value;
  expected.lse_bound = 2 * lse_error + score_rounding;
  if (spec.dtype != DType::kFloat32) expected.lse_bound += unit_roundoff(spec.dtype) / 1024;
  // The AMX kernel's exponentials, and so their sum, are within 9e-5 (amx_softmax-inl.hpp).
  if (on_cpu() && spec.dtype == DType::kBFloat16 && host_isas().back() == CpuIsa::kAmxBf16)
    expected.lse_bound += 1e-4;
  return expected;
}

Expected expect(const Problem& problem) {
  return expect(problem, values_of(problem));
}

Comparison compare(const Problem& problem, const Expected& expected, const Outcome& outcome) {
  const int64_t tokens = problem.num_tokens(), heads = problem.spec.num_query_heads;
  const int64_t dvo = problem.spec.dim_vo();
  Comparison result;
  // A row that sees no key must be exact: 0, and -inf or the sink.
  auto check_one = [&](const char* name, double got, double want, double bound, int64_t token,
                       int64_t head, int64_t dim, double& worst) {
    const double error = error_of(got, want);
    worst = std::max(worst, error == 0 ? 0 : error / bound);
    if (error <= bound || !result.mismatch.empty()) return;
    std::ostringstream text;
    text.precision(9);
    text << name << " of " << place(problem, token, head, dim) << ": got " << got << ", want "
         << want << " +- " << bound << " (lowprec is off by " << expected.lowprec_error << ")";
    result.mismatch = text.str();
  };
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t h = 0; h < heads; h++) {
      if (problem.spec.needs_lse)
        check_one("lse", outcome.lse[h * tokens + t], expected.lse[h * tokens + t],
                  expected.lse_bound, t, h, -1, result.worst_lse_ratio);
      const double* want = &expected.out[(t * heads + h) * dvo];
      const bool empty = expected.lse[h * tokens + t] == -kInfinity;
      for (int64_t d = 0; d < dvo; d++)
        check_one("out", outcome.out[(t * heads + h) * dvo + d], want[d],
                  empty ? 0 : expected.out_bound, t, h, d, result.worst_ratio);
    }
  return result;
}

std::string verdict(const Problem& problem, const Expected& expected, const Outcome& outcome,
                    double* worst) {
  if (!outcome.fault.empty()) return outcome.fault;
  const Comparison comparison = compare(problem, expected, outcome);
  if (worst) *worst = std::max({*worst, comparison.worst_ratio, comparison.worst_lse_ratio});
  return comparison.mismatch;
}

std::string verdict_of_all(const Problem& problem, double* worst) {
  Tensors tensors(problem);
  const Expected expected = expect(problem, tensors.values());
  const std::vector<Backend> backends =
      backends_for(problem.spec, tensors.select_options(Backend{}));
  if (backends.empty()) return "no backend accepts " + problem.describe();
  for (const Backend& backend : backends) {
    std::string wrong;
    Outcome outcome;
    try {
      outcome = run(tensors, backend);
      wrong = verdict(problem, expected, outcome, worst);
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (!wrong.empty())
      return backend.describe() + ": " + wrong + "\n  " + problem.describe() + "\n  " +
             outcome.plan;
  }
  return "";
}

}  // namespace rapt::test
