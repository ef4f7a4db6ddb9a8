#include "core/shared_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rapt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What Error it throws, as text.
template <typename Call>
std::string missing_library(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMissingLibrary);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(SharedLibrary, finds_functions_of_the_first_name_that_loads) {
  const SharedLibrary library({{"libnothere.so.7", "libm.so.6"}, "", ""});
  EXPECT_EQ(library.name(), "libm.so.6");
  EXPECT_THAT(library.path(), HasSubstr("/libm.so.6"));
  double (*absolute)(double) = nullptr;
  library.find(absolute, "fabs");
  EXPECT_EQ(absolute(-3), 3);
}

TEST(SharedLibrary, a_missing_one_is_named_with_reason_purpose_and_remedy) {
  const std::string text = missing_library([] {
    SharedLibrary({{"libnothere.so.7", "/nowhere/lib.so"}, "needed for tea", "boil water"});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("libnothere.so.7 (libnothere.so.7: cannot open shared object"),
                          HasSubstr("/nowhere/lib.so (/nowhere/lib.so: cannot open"),
                          HasSubstr(": needed for tea; boil water")));
}

TEST(SharedLibrary, a_missing_symbol_is_named_with_its_library) {
  const SharedLibrary library({{"libm.so.6"}, "needed for tea", "boil water"});
  void (*function)() = nullptr;
  library.find_optional(function, "rapt_no_such_symbol");
  EXPECT_EQ(function, nullptr);
  const std::string text = missing_library([&] { library.find(function, "rapt_no_such_symbol"); });
  EXPECT_THAT(text, AllOf(HasSubstr("/libm.so.6 has no rapt_no_such_symbol"),
                          HasSubstr("needed for tea; boil water")));
}

}  // namespace
}  // namespace rapt
