#include "matmul.hpp"

#include <utility>

#include "unit/emulator/matmul.cuh"

namespace rapt::emulator {

static_assert(static_cast<int>(device::Fault::kStoresColumnsBehindTheEnd) == kNumFaults - 1);

template <class Element, int... kFaults>
static void run_one(const device::MatmulParams& params, int fault,
                    std::integer_sequence<int, kFaults...>) {
  ((fault == kFaults ? device::matmul<Element, static_cast<device::Fault>(kFaults)>(params)
                     : void()),
   ...);
}

void run_matmul(Memory& memory, const Options& options, const Matmul& problem) {
  const device::MatmulParams params{problem.a.data(), problem.b.data(), problem.c.data(),
                                    problem.rows,     problem.columns,  problem.depth};
  const GridSize grid{(problem.columns + device::kTile - 1) / device::kTile,
                      (problem.rows + device::kTile - 1) / device::kTile};
  const auto faults = std::make_integer_sequence<int, kNumFaults>();
  launch(memory, {grid, device::kMatmulThreads, sizeof(device::MatmulShared)}, options, [&] {
    if (problem.fp16)
      run_one<device::F16>(params, problem.fault, faults);
    else
      run_one<device::Bf16>(params, problem.fault, faults);
  });
}

}  // namespace rapt::emulator
