#include "emulator/driver/entry_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rapt::emulator {
namespace {

using testing::ElementsAre;

TEST(EntryNames, stand_before_their_parameters) {
  EXPECT_THAT(
      entry_names("extern \"C\" GLOBAL void a(int n) {}\n"
                  "extern   \"C\"\nGLOBAL void LAUNCH_BOUNDS(32, f(2)) b2(T<int> t) { g(); }\n"
                  "extern \"C\" GLOBAL LAUNCH_BOUNDS(8) void c_ ();"),
      ElementsAre("a", "b2", "c_"));
}

TEST(EntryNames, are_of_entries_alone) {
  EXPECT_THAT(
      entry_names("// extern \"C\" GLOBAL void a() {}\n/* extern \"C\" GLOBAL void b() {} */"
                  "GLOBAL void c() {} extern \"C\" void d() {}\n"
                  "const char* s = \"\\\"extern \\\"C\\\" GLOBAL void e()\"; void f();"),
      ElementsAre());
  for (const char* cut : {"", "extern \"C\" GLOBAL", "extern \"C\" GLOBAL void", "/* a", "\"a\\",
                          "extern \"C\" GLOBAL LAUNCH_BOUNDS("})
    EXPECT_THAT(entry_names(cut), ElementsAre()) << cut;
}

}  // namespace
}  // namespace rapt::emulator
