#include <gtest/gtest.h>

#include "emulator/fiber.hpp"

namespace rapt::emulator {
namespace {

TEST(StackPool, gives_again_what_is_large_enough) {
  constexpr size_t kBytes = 8192;
  StackPool pool;
  auto stacks = pool.take(64, kBytes);
  char* const first = stacks->bottom(0);
  pool.give_back(std::move(stacks));
  auto fewer = pool.take(32, kBytes);
  EXPECT_EQ(fewer->bottom(0), first);
  const auto meanwhile = pool.take(32, kBytes);  // two blocks at once
  EXPECT_NE(meanwhile->bottom(0), first);
  pool.give_back(std::move(fewer));
  EXPECT_GE(pool.take(65, kBytes)->count(), 65);
  const auto larger = pool.take(64, 2 * kBytes);
  EXPECT_GE(larger->bytes(), 2 * kBytes);
  EXPECT_NE(larger->bottom(0), first);
  EXPECT_EQ(pool.take(1, 1)->bottom(0), first);
}

}  // namespace
}  // namespace rapt::emulator
