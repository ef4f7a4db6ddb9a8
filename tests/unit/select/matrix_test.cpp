#include "matrix.hpp"
#include "support/source_dir.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace rapt {
namespace {

TEST(Matrix, the_documented_tables_are_the_ones_in_use) {
  std::ifstream file(RAPT_SOURCE_DIR "/docs/selection.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(capability_matrix()), std::string::npos)
      << "docs/selection.md does not hold what build/*/tests/unit/select/print_matrix prints";
}

}  // namespace
}  // namespace rapt
