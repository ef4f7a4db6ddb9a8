#include "bench/rounds.hpp"

#include <algorithm>

#include "bench/threads.hpp"

namespace rapt::bench {

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

double Rounds::ratio(size_t measure, size_t other) const {
  std::vector<double> ratios;
  for (size_t round = 0; round < values.at(measure).size(); round++)
    ratios.push_back(values[measure][round] / values.at(other)[round]);
  return spread_of(std::move(ratios)).median;
}

Rounds interleave(std::span<const std::function<double()>> measures, double seconds,
                  int64_t min_rounds) {
  Rounds rounds;
  for (const bool counts : {false, true}) {
    rounds.values.assign(measures.size(), {});
    const double stop = seconds_now() + seconds;
    do {
      for (size_t i = 0; i < measures.size(); i++) rounds.values[i].push_back(measures[i]());
    } while (seconds_now() < stop || (counts && rounds.count() < min_rounds));
  }
  return rounds;
}

double seconds_per_call(const std::function<void()>& call, double seconds) {
  int64_t calls = 0;
  const double start = seconds_now();
  double took = 0;
  do {
    call();
    calls++;
    took = seconds_now() - start;
  } while (took < seconds);
  return took / static_cast<double>(calls);
}

}  // namespace rapt::bench
