// Cost of a row of V logits: a pass or two when nothing is filtered, O(V) selection for top-k, and
// for top-p selections that grow until the mass is reached, so that only the kept tokens are
// sorted.
#include "sampling/sample_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sampling/philox.hpp"

namespace rapt {
namespace {

// Probabilities come from fp32 logits, so a mass is known to a few units of fp32 rounding. A bound
// that is met up to that much is met: {0.5, 0.3, ...} with top_p = 0.8 keeps two tokens.
constexpr double kMassTolerance = 8 * std::numeric_limits<float>::epsilon();

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The loops below go over this many logits side by side, then over those that are left, so that a
// compiler turns them into vector instructions: a vocabulary has 50,000 tokens and more.
constexpr size_t kLanes = 16;

struct Top {
  float logit = -kInfinity;  // the largest
  bool has_nan = false;
};

Top top_of(std::span<const float> logits) {
  float largest[kLanes];
  uint32_t nan[kLanes] = {};
  std::fill_n(largest, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; lane++) {
      const float logit = logits[i + lane];
      largest[lane] = logit > largest[lane] ? logit : largest[lane];
      nan[lane] |= logit != logit ? 1u : 0u;
    }
  }
  for (; i < logits.size(); i++) {
    largest[0] = std::max(largest[0], logits[i]);
    nan[0] |= std::isnan(logits[i]) ? 1u : 0u;
  }
  return {*std::max_element(largest, largest + kLanes),
          std::any_of(nan, nan + kLanes, [](uint32_t flag) { return flag != 0; })};
}

// The first token whose logit is `logit`, which there must be.
int32_t find(std::span<const float> logits, float logit) {
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    uint32_t found = 0;
    for (size_t lane = 0; lane < kLanes; lane++) found |= logits[i + lane] == logit ? 1u : 0u;
    if (found) break;
  }
  while (logits[i] != logit) i++;
  return static_cast<int32_t>(i);
}

// exp((logit - largest) / temperature). An infinite largest takes all the probability: inf - inf
// would be NaN.
float weight_of(float logit, float largest, float temperature) {
  return logit == largest ? 1.0f : std::exp((logit - largest) / temperature);
}

// A draw from all tokens. Weights are found twice: faster than keeping them, and without memory.
int32_t draw_from_all(std::span<const float> logits, float largest, const SamplingParams& params) {
  double sum = 0;
  for (float logit : logits) sum += weight_of(logit, largest, params.temperature);
  const double target = philox_uniform(params.seed, params.offset) * sum;
  double mass = 0;
  int32_t token = 0;
  for (size_t i = 0; i < logits.size() && mass <= target; i++) {
    const float weight = weight_of(logits[i], largest, params.temperature);
    if (weight == 0) continue;
    mass += weight;
    token = static_cast<int32_t>(i);
  }
  return token;  // the last one that can be drawn, if target was rounded up to the whole sum
}

bool filters_nothing(const SamplingParams& params, size_t vocab) {
  const bool has_top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < vocab;
  return !has_top_k && params.top_p >= 1 && params.min_p <= 0;
}

// The order of the filters: larger logit first, and of equal ones the lower index.
struct Before {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

double sum_of(std::span<const float> weights, std::span<const int32_t> tokens) {
  double sum = 0;
  for (int32_t token : tokens) sum += weights[token];
  return sum;
}

// Shortens `tokens` to its smallest leading set, in `before`'s order, with mass >= top_p.
void keep_top_p(std::vector<int32_t>& tokens, std::span<const float> weights, const Before& before,
                double top_p) {
  constexpr size_t kFirstBlock = 64, kGrowth = 4;
  const double wanted = (top_p - kMassTolerance) * sum_of(weights, tokens);
  double mass = 0;
  for (size_t begin = 0, block = kFirstBlock; begin < tokens.size(); block *= kGrowth) {
    const size_t end = std::min(begin + block, tokens.size());
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = tokens.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < tokens.size()) std::nth_element(first, last, tokens.end(), before);
    std::sort(first, last, before);
    for (; begin < end; begin++) {
      mass += weights[tokens[begin]];
      if (mass >= wanted) return tokens.resize(begin + 1);
    }
  }
}

}  // namespace

Candidates filter_row(std::span<const float> logits, const SamplingParams& params) {
  const auto vocab = static_cast<int32_t>(logits.size());
  const float largest = top_of(logits).logit;
  std::vector<float> weights(logits.size());
  for (int32_t i = 0; i < vocab; i++)
    weights[i] = weight_of(logits[i], largest, params.temperature);

  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const Before before{logits};
  if (params.top_k > 0 && params.top_k < vocab) {
    std::nth_element(tokens.begin(), tokens.begin() + params.top_k, tokens.end(), before);
    tokens.resize(params.top_k);
    std::sort(tokens.begin(), tokens.end());  // sums do not depend on how the k were found
  }
  if (params.top_p <= 0) {
    tokens = {find(logits, largest)};
  } else if (params.top_p < 1) {
    keep_top_p(tokens, weights, before, params.top_p);
    std::sort(tokens.begin(), tokens.end());
  }
  // The largest weight is 1, and every filter keeps it.
  const double min_weight = params.min_p - kMassTolerance;
  std::erase_if(tokens, [&](int32_t token) {
    return weights[token] == 0 || (params.min_p > 0 && weights[token] < min_weight);
  });

  Candidates kept{std::move(tokens), {}};
  kept.weights.reserve(kept.tokens.size());
  for (int32_t token : kept.tokens) kept.weights.push_back(weights[token]);
  return kept;
}

SampledToken sample_row(std::span<const float> logits, const SamplingParams& params) {
  const Top top = top_of(logits);
  if (top.has_nan) return {-1, SampleStatus::kNan};
  if (top.logit == -kInfinity) return {-1, SampleStatus::kNothingLeft};
  if (params.temperature == 0) return {find(logits, top.logit), SampleStatus::kOk};

  if (filters_nothing(params, logits.size()))
    return {draw_from_all(logits, top.logit, params), SampleStatus::kOk};

  const Candidates kept = filter_row(logits, params);
  const double sum = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
  const double target = philox_uniform(params.seed, params.offset) * sum;
  double mass = 0;
  for (size_t i = 0; i < kept.tokens.size(); i++) {
    mass += kept.weights[i];
    if (mass > target) return {kept.tokens[i], SampleStatus::kOk};
  }
  return {kept.tokens.back(), SampleStatus::kOk};  // target rounded up to the whole sum
}

}  // namespace rapt
