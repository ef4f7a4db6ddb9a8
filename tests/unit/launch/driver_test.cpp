#include "launch/driver.hpp"

#include <cstdlib>
#include <thread>

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class DriverTest : public FakeDriverTest {};

TEST_F(DriverTest, a_machine_without_one_is_told_what_is_missing_and_what_to_do) {
  const std::string text =
      error_of(ErrorCode::kMissingLibrary, [] { Driver("libcuda-nothere.so.1"); });
  EXPECT_THAT(text, AllOf(HasSubstr("could not load libcuda-nothere.so.1"),
                          HasSubstr("cannot open shared object file"),
                          HasSubstr("needed for every CUDA device"),
                          HasSubstr("install NVIDIA's driver"), HasSubstr("device cpu")));
}

TEST_F(DriverTest, a_library_that_is_no_driver_is_named_with_what_it_lacks) {
  const std::string text = error_of(ErrorCode::kMissingLibrary, [] { Driver("libm.so.6"); });
  EXPECT_THAT(text, AllOf(HasSubstr("libm.so.6 has no cuInit"), HasSubstr("too old")));
}

TEST_F(DriverTest, a_failing_cuInit_is_an_error_with_the_drivers_words) {
  const std::string text = error_when_fails("cuInit", [] { Driver(std::string(FAKE_LIBCUDA)); });
  EXPECT_THAT(text, AllOf(HasSubstr("cuInit of "), HasSubstr("fake_libcuda_new"),
                          EndsWith(": CUDA_ERROR_FAKE (719), told to fail")));
}

TEST_F(DriverTest, an_error_says_call_detail_name_number_and_text) {
  EXPECT_EQ(error_of(ErrorCode::kDevice, [&] { driver_.check(719, "cuThis", " of ", 3); }),
            "cuThis of 3: CUDA_ERROR_FAKE (719), told to fail");
  EXPECT_EQ(error_of(ErrorCode::kOutOfMemory, [&] { driver_.check(2, "cuThat"); }),
            "cuThat: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory");
  EXPECT_EQ(error_of(ErrorCode::kDevice, [&] { driver_.check(1234, "cuThat"); }),
            "cuThat: error (1234), which the driver has no text for");
  EXPECT_NO_THROW(driver_.check(kSuccess, "cuThis"));
}

TEST_F(DriverTest, an_older_one_lacks_only_what_came_later) {
  const Driver old(FAKE_OLD_LIBCUDA);
  EXPECT_EQ(old.version, 11080);
  EXPECT_EQ(old.cuTensorMapEncodeTiled, nullptr);
  EXPECT_EQ(old.cuFuncLoad, nullptr);
  EXPECT_EQ(old.cuGraphLaunch, nullptr);
  EXPECT_NE(old.cuLaunchKernelEx, nullptr);
  EXPECT_NE(driver_.cuTensorMapEncodeTiled, nullptr);
}

// The only test that asks for the process's driver: it is loaded once.
TEST_F(DriverTest, that_of_the_process_is_loaded_once_by_whoever_comes_first) {
  setenv("RAPT_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  EXPECT_THAT(error_of(ErrorCode::kMissingLibrary, [] { driver(); }),
              HasSubstr("/nowhere/libcuda.so.1"));
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);  // a failed load is made again
  std::vector<const Driver*> seen(8);
  std::vector<std::thread> threads;
  for (const Driver*& mine : seen) threads.emplace_back([&mine] { mine = &driver(); });
  for (std::thread& thread : threads) thread.join();
  for (const Driver* one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_EQ(seen[0]->version, 13000);
}

}  // namespace
}  // namespace rapt::cuda
