#include "emulator/product.hpp"

#include <cstring>

namespace rapt::emulator {

// A chunk of 4 rows and 8 columns of d stays in registers. Multiplications and additions are
// rounded apart or fused, as the CPU has it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void
multiply_add(float* d, const float (*a)[kProductDepth], const float* b, int columns) {
  constexpr int kChunkRows = 4, kChunkColumns = 8;
  typedef float Vector __attribute__((vector_size(kChunkColumns * sizeof(float))));
  for (int column = 0; column < columns; column += kChunkColumns)
    for (int row = 0; row < kProductRows; row += kChunkRows) {
      Vector sums[kChunkRows];
      for (int i = 0; i < kChunkRows; ++i)
        std::memcpy(&sums[i], d + (row + i) * columns + column, sizeof(Vector));
      for (int k = 0; k < kProductDepth; ++k) {
        Vector b_row;
        std::memcpy(&b_row, b + k * columns + column, sizeof(Vector));
        for (int i = 0; i < kChunkRows; ++i) sums[i] += a[row + i][k] * b_row;
      }
      for (int i = 0; i < kChunkRows; ++i)
        std::memcpy(d + (row + i) * columns + column, &sums[i], sizeof(Vector));
    }
}

}  // namespace rapt::emulator
