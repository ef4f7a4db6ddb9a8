#include "support/problem.hpp"

#include <cmath>
#include <sstream>

#include "support/element.hpp"

namespace rapt::test {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return mix(mix(mix(mix(mix(seed) ^ a) ^ b) ^ c) ^ d);
}

// What a number is drawn for.
enum Purpose : uint64_t { kQ = 1, kK, kV, kSink, kSlope, kKScale, kVScale, kMask };

std::vector<float> or_drawn(const std::vector<float>& given, size_t count, auto draw) {
  if (!given.empty()) return given;
  std::vector<float> drawn(count);
  for (size_t i = 0; i < count; i++) drawn[i] = static_cast<float>(draw(i));
  return drawn;
}

// Rows of one tensor of one request, appended.
void append_rows(std::vector<float>& rows, const Problem& problem, DType dtype, int64_t id,
                 int64_t first, int64_t num_tokens, int64_t num_heads, int64_t dim, Purpose purpose,
                 const ValueOf& given, double amplitude) {
  for (int64_t t = first; t < first + num_tokens; t++)
    for (int64_t h = 0; h < num_heads; h++) {
      const uint64_t key = hash(problem.seed, purpose, id, t, h);
      for (int64_t d = 0; d < dim; d++) {
        const double value = given ? given(id, t, h, d) : amplitude * normal_of(key, d);
        rows.push_back(static_cast<float>(round_to(dtype, value)));
      }
    }
}

}  // namespace

double uniform_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return static_cast<double>(hash(seed, a, b, c, d) >> 11) * 0x1p-53;
}

// The sum of four uniform 16-bit numbers, standardised: normal enough, and bounded by 3.5.
double normal_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t bits = (b | c | d) ? hash(seed, a, b, c, d) : mix(seed ^ mix(a));
  const double sum = static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                         (bits >> 32 & 0xffff) + (bits >> 48));
  return (sum * 0x1p-16 - 2) * std::sqrt(3.0);
}

bool position_sees(const AttentionSpec& spec, int64_t i, int64_t j, int64_t query_len,
                   int64_t kv_len) {
  const int64_t p = i + kv_len - query_len;
  const bool causal = spec.causal.value_or(spec.kind == AttentionKind::kDecoder);
  if (causal && j > p) return false;
  if (spec.window.left != -1 && j < p - spec.window.left) return false;
  return spec.window.right == -1 || j <= p + spec.window.right;
}

int64_t Problem::num_tokens() const {
  int64_t sum = 0;
  for (const RequestLengths& request : requests) sum += request.query_len;
  return sum;
}

int64_t Problem::num_keys() const {
  int64_t sum = 0;
  for (const RequestLengths& request : requests) sum += request.kv_len;
  return sum;
}

DType Problem::kv_dtype() const {
  if (spec.page_size == 0 || spec.kv_format == KvFormat::kAuto) return spec.dtype;
  return element_dtype(spec.kv_format).value();
}

AttentionSpec make_spec(DType dtype, int32_t num_query_heads, int32_t num_kv_heads,
                        int32_t head_dim_qk, int32_t head_dim_vo) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.num_query_heads = num_query_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_dim_qk = head_dim_qk;
  spec.head_dim_vo = head_dim_vo;
  spec.needs_lse = true;
  return spec;
}

std::string Problem::describe() const {
  std::ostringstream text;
  text << to_string(spec.dtype) << " Hq=" << spec.num_query_heads << " Hkv=" << spec.num_kv_heads
       << " D=" << spec.head_dim_qk << '/' << spec.dim_vo() << " P=" << spec.page_size << ' '
       << to_string(spec.kind) << (spec.is_causal() ? " causal" : " both-ways") << " window=("
       << spec.window.left << ',' << spec.window.right << ')';
  if (spec.scale) text << " scale=" << *spec.scale;
  if (spec.softcap != 0) text << " softcap=" << spec.softcap;
  if (spec.alibi) text << " alibi";
  if (spec.sinks) text << " sinks";
  if (spec.custom_mask) text << " mask";
  if (spec.kv_scales != KvScales::kNone) text << " scales=" << to_string(spec.kv_scales);
  if (spec.needs_lse) text << " lse";
  if (spec.batch_invariant) text << " invariant";
  if (spec.is_paged()) {
    text << ' ' << to_string(layout.shape) << '/' << to_string(layout.order);
    if (layout.num_layers) text << " layer=" << layout.layer << '/' << layout.num_layers;
    if (layout.manager_ratio > 1) text << " ratio=" << layout.manager_ratio;
    if (layout.write_kv) text << " write_kv";
  }
  if (layout.packed_qkv) text << " packed_qkv";
  text << " seed=" << seed << " (Lq,Lk)=";
  for (const RequestLengths& request : requests)
    text << '(' << request.query_len << ',' << request.kv_len << ')';
  return text.str();
}

Values values_of(const Problem& problem) {
  const AttentionSpec& spec = problem.spec;
  const int64_t hq = spec.num_query_heads, hkv = spec.num_kv_heads;
  const uint64_t seed = problem.seed;
  Values values;
  values.query_start = values.kv_start = values.mask_start = {0};
  values.q.reserve(problem.num_tokens() * hq * spec.head_dim_qk);
  values.k.reserve(problem.num_keys() * hkv * spec.head_dim_qk);
  values.v.reserve(problem.num_keys() * hkv * spec.dim_vo());
  for (size_t b = 0; b < problem.requests.size(); b++) {
    const int64_t id = problem.id(b);
    const int64_t query_len = problem.requests[b].query_len, kv_len = problem.requests[b].kv_len;
    const int64_t first = problem.requests[b].first_key;
    append_rows(values.q, problem, spec.dtype, id, 0, query_len, hq, spec.head_dim_qk, kQ,
                problem.q, problem.q_amplitude);
    append_rows(values.k, problem, problem.kv_dtype(), id, first, kv_len, hkv, spec.head_dim_qk, kK,
                problem.k, 1);
    append_rows(values.v, problem, problem.kv_dtype(), id, first, kv_len, hkv, spec.dim_vo(), kV,
                problem.v, 1);
    values.query_start.push_back(values.query_start.back() + query_len);
    values.kv_start.push_back(values.kv_start.back() + kv_len);
    values.mask_start.push_back(values.mask_start.back() + query_len * kv_len);
    values.reachable.resize(values.kv_start.back(), 0);
    uint8_t* reachable = values.reachable.data() + values.kv_start[b];
    for (int64_t i = 0; i < query_len; i++)
      for (int64_t j = 0; j < kv_len; j++) {
        bool seen = position_sees(spec, i, j, query_len, kv_len);
        if (spec.custom_mask) {
          const bool shown = problem.mask ? problem.mask(id, i, first + j)
                                          : uniform_of(seed, kMask, id, i, first + j) < 0.7;
          values.mask.push_back(shown);
          seen &= shown;
        }
        reachable[j] |= seen;
      }
  }
  if (spec.sinks)
    values.sinks =
        or_drawn(problem.sinks, hq, [&](size_t h) { return normal_of(seed, kSink, h + 1); });
  if (spec.alibi)
    values.alibi_slopes =
        or_drawn(problem.alibi_slopes, hq, [&](size_t h) { return uniform_of(seed, kSlope, h); });
  if (spec.kv_scales != KvScales::kNone) {
    const size_t count = spec.kv_scales == KvScales::kPerTensor ? 1 : hkv;
    // Powers of two where write_kv divides by them, so that no value is rounded twice.
    auto draw = [&](Purpose purpose, size_t h) {
      const double u = uniform_of(seed, purpose, h);
      return problem.layout.write_kv ? std::ldexp(2.0, static_cast<int>(2 * u)) : 0.5 + u;
    };
    values.k_scale = or_drawn(problem.k_scale, count, [&](size_t h) { return draw(kKScale, h); });
    values.v_scale = or_drawn(problem.v_scale, count, [&](size_t h) { return draw(kVScale, h); });
  }
  return values;
}

}  // namespace rapt::test
