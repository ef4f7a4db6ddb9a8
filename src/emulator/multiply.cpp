// mma.sync.m16n8k16: the last lane to come gathers everyone's fragments into plain matrices,
// multiplies and scatters. A row of instructions with one a is one product, which the CPU's vectors
// do well.
#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/meeting.hpp"
#include "emulator/product.hpp"

namespace rapt::emulator {

struct Matrices {
  float d[kProductRows * kMaxProductColumns];  // [row][column], without gaps
  float a[kProductRows][kProductDepth];
  float b[kProductDepth * kMaxProductColumns];  // [depth][column], without gaps
};

namespace {

constexpr int kFragmentColumns = 8;
constexpr int kMaxFragments = kMaxProductColumns / kFragmentColumns;

// What a lane brings.
struct Operands {
  ElementType type;
  int fragments;
  float (*d)[4];
  const uint32_t* a;
  const uint32_t (*b)[2];

  int columns() const { return fragments * kFragmentColumns; }
};

template <ElementType kType>
void gather(Matrices& to, const Operands& from, int lane) {
  for_a_fragment(lane, [&](int i, int row, int column, int half) {
    to.a[row][column] = to_float(kType, from.a[i] >> (16 * half));
  });
  // PTX ISA, the B fragment: the lane's group is its column, its place in the group a pair of rows.
  float* const b = to.b + lane / 4;
  const int columns = from.columns(), first_row = lane % 4 * 2;
  for (int f = 0; f < from.fragments; ++f)
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half)
        b[(first_row + i * 8 + half) * columns + f * kFragmentColumns] =
            to_float(kType, from.b[f][i] >> (16 * half));
  for_d_fragment(lane, columns, [&](int i, int row, int column) {
    to.d[row * columns + column] = from.d[i / 4][i % 4];
  });
}

void scatter(const Matrices& from, const Operands& to, int lane) {
  for_d_fragment(lane, to.columns(), [&](int i, int row, int column) {
    to.d[i / 4][i % 4] = from.d[row * to.columns() + column];
  });
}

}  // namespace

void multiply(ElementType type, float (*d)[4], const uint32_t (&a)[4], const uint32_t (*b)[2],
              int fragments, Location at) {
  const Instruction instruction("mma.sync", at);
  require_capability(80);
  if (fragments < 1 || fragments > kMaxFragments)
    fail_in(*self, concat("a row of ", fragments, " products, must be 1 to ", kMaxFragments));
  const Operands operands{type, fragments, d, a, b};
  meet(Aligned::kYes, {.operands = &operands}, [&](const Brought* values) {
    if (!grid->matrices) grid->matrices = std::make_shared<Matrices>();
    Matrices& matrices = *grid->matrices;
    // What lanes bring lies on as many stacks, which no cache holds.
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto& its = *static_cast<const Operands*>(values[lane].operands);
      __builtin_prefetch(its.a);
      __builtin_prefetch(its.b);
      __builtin_prefetch(its.d, 1);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto& its = *static_cast<const Operands*>(values[lane].operands);
      type == ElementType::kBf16 ? gather<ElementType::kBf16>(matrices, its, lane)
                                 : gather<ElementType::kF16>(matrices, its, lane);
    }
    multiply_add(matrices.d, matrices.a, matrices.b, operands.columns());
    for (int lane = 0; lane < kLanes; ++lane)
      scatter(matrices, *static_cast<const Operands*>(values[lane].operands), lane);
  });
}

}  // namespace rapt::emulator
