#include "bench/decode.hpp"

#include <algorithm>

#include "bench/memory_limits.hpp"
#include "bench/step.hpp"

namespace rapt::bench {
namespace {

constexpr double kGiga = 1e-9;
// Ten times a large last-level cache; caches of at least 256 MB take turns.
constexpr int64_t kPoolBytes = int64_t{320} << 20;
constexpr int64_t kPrefetchAhead = int64_t{16} << 10;

// One turn's rate from seconds_of(set). Cold: all sets once, so that none is found where the
// measure before left it. Warm: the one set a few times, after it has been read a few times.
double turn(const Step& step, bool cold, int64_t bytes,
            const std::function<double(int64_t set)>& seconds_of) {
  constexpr int kWarmUp = 3;
  constexpr double kWarmSeconds = 3e-3;
  double took = 0;
  int64_t count = 0;
  if (cold) {
    for (; count < step.num_sets(); count++) took += seconds_of(count);
  } else {
    for (int i = 0; i < kWarmUp; i++) seconds_of(0);
    for (; took < kWarmSeconds; count++) took += seconds_of(0);
  }
  return static_cast<double>(bytes * count) / took * kGiga;
}

// The three ways to read a step's bytes plainly, in this order.
constexpr const char* kReads[] = {"page walk", "page walk, prefetched", "sequential read"};

std::vector<std::function<double()>> read_measures(const Step& step, bool cold, Threads& threads) {
  const auto walk = [&, cold](int64_t ahead) {
    return turn(step, cold, step.bytes(),
                [&](int64_t set) { return read_runs(threads, step.reads(set), ahead); });
  };
  return {[walk] { return walk(0); }, [walk] { return walk(kPrefetchAhead); },
          [&, cold] {
            return turn(step, cold, step.sequential(0).bytes, [&](int64_t set) {
              return read_sequentially(threads, step.sequential(set));
            });
          }};
}

}  // namespace

std::vector<Limit> memory_limits(Context& context, Threads& threads, double seconds) {
  Shape shape;
  shape.phase = Phase::kDecode;
  shape.keys = 8192;
  const Step step(context, shape, kPoolBytes);
  std::vector<std::function<double()>> measures = read_measures(step, true, threads);
  measures.emplace_back([&] {
    constexpr int64_t kBytes = int64_t{8} << 20;
    return turn(step, false, kBytes, [&](int64_t) {
      return read_sequentially(threads, {step.sequential(0).data, kBytes});
    });
  });
  const Rounds rounds = interleave(measures, seconds);
  std::vector<Limit> limits;
  for (size_t i = 0; i < std::size(kReads); i++)
    limits.push_back({kReads[i], Measure::kGigabytes, rounds.spread(i)});
  limits.push_back(
      {"read within the last-level cache", Measure::kGigabytes, rounds.spread(std::size(kReads))});
  return limits;
}

Figure measure_decode(Context& context, Threads& threads, const Shape& shape, double seconds) {
  const Step step(context, shape, shape.cold ? kPoolBytes : 0);
  std::vector<std::function<double()>> measures = read_measures(step, shape.cold, threads);
  measures.insert(measures.begin(), [&] {
    return turn(step, shape.cold, step.bytes(), [&](int64_t set) {
      const double start = seconds_now();
      step.run(set);
      return seconds_now() - start;
    });
  });
  const Rounds rounds = interleave(measures, seconds);

  Figure figure{to_string(shape.phase), shape.describe(), step.backend(), step.plan(),
                Measure::kGigabytes};
  figure.spread = rounds.spread(0);
  figure.rounds = rounds.count();
  figure.microseconds = static_cast<double>(step.bytes()) / figure.spread.median * 1e-3;
  for (size_t i = 0; i < std::size(kReads); i++)
    figure.beside.push_back(
        {{kReads[i], Measure::kGigabytes, rounds.spread(i + 1)}, rounds.ratio(0, i + 1)});
  return figure;
}

}  // namespace rapt::bench
