#include "bench/prefill.hpp"

#include "bench/compute_limits.hpp"
#include "bench/step.hpp"

namespace rapt::bench {
namespace {

constexpr double kTurnSeconds = 0.02;

// Of the products of Q with K and of the probabilities with V, for pairs that the mask leaves.
double flops_of(const Shape& shape) {
  const double queries = shape.queries, keys = shape.keys;
  // The last query sees all keys, each before it one less, down to none.
  const double rows = std::min(queries, keys);
  const double pairs = shape.causal ? rows * keys - rows * (rows - 1) / 2 : queries * keys;
  return 4.0 * shape.head_dim * shape.query_heads * shape.requests * pairs;
}

}  // namespace

std::vector<Limit> compute_limits(Context& context, Threads& threads, double seconds) {
  const CpuIsa isa = context.device().isa;
  std::vector<Limit> limits;
  std::vector<std::function<double()>> measures;
  for (const Unit unit : {Unit::kAmxTile, Unit::kBf16Dot, Unit::kFma}) {
    if (!has(unit, isa)) continue;
    limits.push_back({to_string(unit), Measure::kGigaflops, {}});
    measures.emplace_back(
        [&, unit] { return peak_flops(unit, isa, threads, kTurnSeconds) * 1e-9; });
  }
  const Rounds rounds = interleave(measures, seconds);
  for (size_t i = 0; i < limits.size(); i++) limits[i].spread = rounds.spread(i);
  return limits;
}

Figure measure_prefill(Context& context, Threads& threads, const Shape& shape, double seconds) {
  const Step step(context, shape);
  const double flops = flops_of(shape);
  const CpuIsa isa = context.device().isa;
  const Unit unit = unit_for(shape.dtype, isa);
  const std::function<double()> measures[] = {
      [&] { return flops / seconds_per_call([&] { step.run(0); }, kTurnSeconds) * 1e-9; },
      [&] { return peak_flops(unit, isa, threads, kTurnSeconds) * 1e-9; }};
  const Rounds rounds = interleave(measures, seconds);

  Figure figure{to_string(shape.phase), shape.describe(), step.backend(), step.plan(),
                Measure::kGigaflops};
  figure.spread = rounds.spread(0);
  figure.rounds = rounds.count();
  figure.microseconds = flops / figure.spread.median * 1e-3;
  figure.beside = {{{to_string(unit), Measure::kGigaflops, rounds.spread(1)}, rounds.ratio(0, 1)}};
  return figure;
}

}  // namespace rapt::bench
