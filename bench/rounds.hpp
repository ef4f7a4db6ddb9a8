// The estimator: several things measured turn by turn, so that whatever the machine does meanwhile
// happens to all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rapt::bench {

struct Spread {
  double low = 0, median = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

struct Rounds {
  std::vector<std::vector<double>> values;  // [measure][round]

  int64_t count() const { return static_cast<int64_t>(values.at(0).size()); }
  Spread spread(size_t measure) const { return spread_of(values.at(measure)); }
  // Median over rounds of one measure over another of the same round.
  double ratio(size_t measure, size_t other) const;
};

// Each round calls every measure once, in order; a measure returns its figure. Rounds of the first
// `seconds` are warm-up and forgotten, those of the next `seconds` count: at least `min_rounds`.
Rounds interleave(std::span<const std::function<double()>> measures, double seconds,
                  int64_t min_rounds = 3);

// Seconds of one call: the mean over as many calls as take at least `seconds` together.
double seconds_per_call(const std::function<void()>& call, double seconds);

}  // namespace rapt::bench
