// A machine without a driver. A program of its own: a process loads its driver once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "rapt/context.hpp"
#include "rapt/error.hpp"

namespace rapt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NoDriver, the_message_names_the_library_and_what_it_would_enable) {
  setenv("RAPT_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  try {
    const Context context({.device = "cuda"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMissingLibrary);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("/nowhere/libcuda.so.1"), HasSubstr("needed for every CUDA device"),
                      HasSubstr("install NVIDIA's driver")));
  }
  const Context cpu({.device = "cpu", .num_threads = 1});
  EXPECT_EQ(cpu.tensor_device(), Device{});
}

}  // namespace
}  // namespace rapt
