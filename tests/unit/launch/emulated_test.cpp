// With the fake driver in the emulator's place; tests/unit/emulator_driver has the real one.
#include "launch/emulated.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::HasSubstr;

class EmulatedTest : public FakeDriverTest {};

// One test: the emulator's driver is loaded once for the process.
TEST_F(EmulatedTest, the_library_is_the_one_named_and_devices_are_found_by_capability) {
  setenv("RAPT_EMULATOR", "/nowhere/librapt_emulator.so", 1);
  EXPECT_THAT(error_of(ErrorCode::kMissingLibrary, [] { emulated_driver(); }),
              HasSubstr("/nowhere/librapt_emulator.so"));
  setenv("RAPT_EMULATOR", FAKE_LIBCUDA, 1);
  EXPECT_EQ(emulator_library(), FAKE_LIBCUDA);
  EXPECT_EQ(emulated_driver().path, FAKE_LIBCUDA);
  EXPECT_EQ(&emulated_driver(), &emulated_driver());
  EXPECT_EQ(emulated_ordinal(90), 0);
  EXPECT_EQ(emulated_ordinal(80), 1);
  EXPECT_EQ(error_of(ErrorCode::kUnsupported, [] { emulated_ordinal(75); }),
            "no emulated device of compute capability 75, there are 90, 80");
  unsetenv("RAPT_EMULATOR");
}

TEST_F(EmulatedTest, the_emulator_is_known_by_its_file) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("rapt_emulated_test." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto copy = folder / "librapt_emulator.so";
  std::filesystem::copy_file(FAKE_LIBCUDA, copy);
  EXPECT_TRUE(is_emulated(Driver(copy.string())));
  EXPECT_FALSE(is_emulated(Driver(FAKE_LIBCUDA)));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rapt::cuda
