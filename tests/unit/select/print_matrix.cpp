// Prints the capability tables for docs/selection.md.
#include <cstdio>

#include "matrix.hpp"

int main() {
  std::fputs(rapt::capability_matrix().c_str(), stdout);
}
