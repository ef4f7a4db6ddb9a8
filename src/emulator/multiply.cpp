// mma.sync.m16n8k16: the last lane to come gathers everyone's fragments into plain matrices,
// multiplies and scatters. A row of instructions with one a is one product, which vectors of the
// CPU do well.
#include <cstring>

#include "core/check.hpp"
#include "core/float16.hpp"
#include "emulator/instructions.hpp"
#include "emulator/meeting.hpp"

namespace rapt::emulator {

namespace {

constexpr int kRows = 16, kDepth = 16, kFragmentColumns = 8;
constexpr int kMaxFragments = 32;
constexpr int kMaxColumns = kMaxFragments * kFragmentColumns;

// What a lane brings.
struct Operands {
  ElementType type;
  int fragments;
  float (*d)[4];
  const uint32_t* a;
  const uint32_t (*b)[2];
};

struct Product {
  float d[kRows * kMaxColumns];  // [row][column], without gaps
  float a[kRows][kDepth];
  float b[kDepth * kMaxColumns];  // [depth][column], without gaps
};

float to_float(ElementType type, uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits);
  return type == ElementType::kBf16 ? bfloat16_to_float(half) : float16_to_float(half);
}

// PTX ISA, Matrix Fragments for mma.m16n8k16 with 16-bit elements. The lane's group g is a row of a
// and d and a column of b; its place t in the group is a pair of columns of a and d, of rows of b.
void gather(Product& to, const Operands& from, int lane) {
  const int g = lane / 4, t = lane % 4 * 2, columns = from.fragments * kFragmentColumns;
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half)
      to.a[g + i % 2 * 8][t + i / 2 * 8 + half] = to_float(from.type, from.a[i] >> (16 * half));
  for (int f = 0; f < from.fragments; ++f) {
    const int column = f * kFragmentColumns;
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half)
        to.b[(t + i * 8 + half) * columns + column + g] =
            to_float(from.type, from.b[f][i] >> (16 * half));
    for (int i = 0; i < 4; ++i) to.d[(g + i / 2 * 8) * columns + column + t + i % 2] = from.d[f][i];
  }
}

void scatter(const Product& from, const Operands& to, int lane) {
  const int g = lane / 4, t = lane % 4 * 2, columns = to.fragments * kFragmentColumns;
  for (int f = 0; f < to.fragments; ++f)
    for (int i = 0; i < 4; ++i)
      to.d[f][i] = from.d[(g + i / 2 * 8) * columns + f * kFragmentColumns + t + i % 2];
}

// d[16][columns] += a[16][16] b[16][columns], in chunks of 4 rows x 8 columns that stay in
// registers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void
multiply_all(Product& p, int columns) {
  constexpr int kBlockRows = 4;
  typedef float Vector __attribute__((vector_size(kFragmentColumns * sizeof(float))));
  for (int column = 0; column < columns; column += kFragmentColumns)
    for (int row = 0; row < kRows; row += kBlockRows) {
      Vector sums[kBlockRows];
      for (int i = 0; i < kBlockRows; ++i)
        std::memcpy(&sums[i], &p.d[(row + i) * columns + column], sizeof(Vector));
      for (int k = 0; k < kDepth; ++k) {
        Vector b;
        std::memcpy(&b, &p.b[k * columns + column], sizeof(Vector));
        for (int i = 0; i < kBlockRows; ++i) sums[i] += p.a[row + i][k] * b;
      }
      for (int i = 0; i < kBlockRows; ++i)
        std::memcpy(&p.d[(row + i) * columns + column], &sums[i], sizeof(Vector));
    }
}

}  // namespace

void multiply(ElementType type, float (*d)[4], const uint32_t (&a)[4], const uint32_t (*b)[2],
              int fragments, Location at) {
  const Instruction instruction("mma.sync", at);
  if (fragments < 1 || fragments > kMaxFragments)
    fail_in(*self, concat("a row of ", fragments, " products, must be 1 to ", kMaxFragments));
  const Operands operands{type, fragments, d, a, b};
  meet(Aligned::kYes, {.operands = &operands}, [&](const Brought* values) {
    thread_local Product product;  // too large for a thread's stack
    for (int lane = 0; lane < kLanes; ++lane)
      gather(product, *static_cast<const Operands*>(values[lane].operands), lane);
    multiply_all(product, fragments * kFragmentColumns);
    for (int lane = 0; lane < kLanes; ++lane)
      scatter(product, *static_cast<const Operands*>(values[lane].operands), lane);
  });
}

}  // namespace rapt::emulator
