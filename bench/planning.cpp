#include "bench/planning.hpp"

#include <algorithm>
#include <random>

#include "bench/threads.hpp"
#include "rapt/attention.hpp"

namespace rapt::bench {
namespace {

constexpr size_t kBatches = 8;  // of different lengths, planned in turn as a server does
constexpr int32_t kChunkEvery = 8;

struct Lengths {
  std::vector<int32_t> query_start{0}, kv_len;
};

// A single request is as long as the shape allows, several are of any length.
Lengths random_lengths(const Shape& shape, std::mt19937& random) {
  Lengths lengths;
  const auto up_to = [&](int32_t most) {
    return std::uniform_int_distribution<int32_t>(1, most)(random);
  };
  for (int32_t b = 0; b < shape.requests; b++) {
    const int32_t keys = shape.requests == 1 ? shape.keys : up_to(shape.keys);
    const bool chunk = shape.mixed && b % kChunkEvery == 0;
    const int32_t queries = chunk ? std::min(up_to(shape.queries), keys) : 1;
    lengths.query_start.push_back(lengths.query_start.back() + queries);
    lengths.kv_len.push_back(keys);
  }
  return lengths;
}

}  // namespace

std::vector<Figure> measure_planning(Context& context, const Shape& shape, double seconds) {
  const Attention attention(context, spec_of(shape));

  std::mt19937 random(5);
  std::vector<Lengths> lengths;
  for (size_t i = 0; i < kBatches; i++) lengths.push_back(random_lengths(shape, random));
  std::vector<int32_t> page_table, kv_start{0};
  int64_t width = 0;
  const int64_t num_pages = int64_t{1} << 20;
  if (shape.page_size > 0) {
    width = (shape.keys + shape.page_size - 1) / shape.page_size;
    page_table.resize(static_cast<size_t>(shape.requests * width));
    std::uniform_int_distribution<int32_t> ids(0, static_cast<int32_t>(num_pages) - 1);
    for (int32_t& page : page_table) page = ids(random);
  } else {
    for (int32_t b = 0; b < shape.requests; b++) kv_start.push_back(kv_start.back() + shape.keys);
  }
  const auto batch_of = [&](size_t i) {
    Batch batch;
    batch.query_start = lengths[i].query_start;
    batch.kv_len = lengths[i].kv_len;
    if (shape.page_size > 0) {
      batch.page_table =
          TensorView::contiguous(page_table.data(), DType::kInt32, {shape.requests, width});
      batch.num_pages = num_pages;
    } else {
      batch.kv_start = kv_start;
    }
    return batch;
  };

  Plan plan = attention.plan(batch_of(0));
  // Microseconds of the median call of a turn over all batches.
  const auto turn = [&](const auto& call) {
    std::vector<double> times;
    for (size_t i = 0; i < kBatches; i++) {
      const Batch batch = batch_of(i);
      const double start = seconds_now();
      call(batch);
      times.push_back((seconds_now() - start) * 1e6);
    }
    return spread_of(std::move(times)).median;
  };
  const std::function<double()> measures[] = {
      [&] { return turn([&](const Batch& batch) { attention.replan(plan, batch); }); },
      [&] { return turn([&](const Batch& batch) { Plan fresh = attention.plan(batch); }); }};
  const Rounds rounds = interleave(measures, seconds);

  std::vector<Figure> figures;
  for (const char* what : {"replan", "plan"}) {
    const size_t i = figures.size();
    Figure& figure = figures.emplace_back(
        Figure{to_string(shape.phase), shape.describe() + ", " + what,
               to_string(attention.selection().backend), plan.describe(), Measure::kMicroseconds});
    figure.spread = rounds.spread(i);
    figure.rounds = rounds.count();
    figure.microseconds = figure.spread.median;
  }
  return figures;
}

}  // namespace rapt::bench
