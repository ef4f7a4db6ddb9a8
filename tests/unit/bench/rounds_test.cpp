#include "bench/rounds.hpp"

#include <gtest/gtest.h>

#include <string>

namespace rapt::bench {
namespace {

TEST(Rounds, median_is_the_middle_or_the_mean_of_the_two_there) {
  const Spread odd = spread_of({5, 1, 100});
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.high, 100);
  EXPECT_EQ(spread_of({4, 1, 2, 100}).median, 3);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(Rounds, a_ratio_compares_within_rounds) {
  // The medians of each measure alone would say 10 / 40.
  const Rounds rounds{{{10, 10, 30}, {20, 40, 60}}};
  EXPECT_DOUBLE_EQ(rounds.ratio(0, 1), 0.5);
}

TEST(Rounds, measures_take_turns_and_the_warm_up_is_forgotten) {
  std::string order;
  double calls = 0;
  const std::function<double()> measures[] = {[&] {
                                                order += 'a';
                                                return ++calls;
                                              },
                                              [&] {
                                                order += 'b';
                                                return -1.0;
                                              }};
  const Rounds rounds = interleave(measures, 0, 4);
  EXPECT_EQ(order, "ababababab");  // one round of warm-up, four that count
  EXPECT_EQ(rounds.values[0], (std::vector<double>{2, 3, 4, 5}));
  EXPECT_EQ(rounds.values[1], (std::vector<double>(4, -1)));
  EXPECT_EQ(rounds.count(), 4);
}

}  // namespace
}  // namespace rapt::bench
