// The kernel of matmul.cuh as tests see it.
#pragma once

#include <cstdint>
#include <span>

#include "emulator/launch.hpp"

namespace rapt::emulator {

struct Matmul {
  std::span<const uint16_t> a;  // [rows][depth]
  std::span<const uint16_t> b;  // [depth][columns]
  std::span<float> c;           // [rows][columns]
  uint32_t rows, columns, depth;
  bool fp16 = false;  // or bf16
  int fault = 0;      // of device::Fault
};
constexpr int kNumFaults = 12;

void run_matmul(Memory& memory, const Options& options, const Matmul& problem);

}  // namespace rapt::emulator
