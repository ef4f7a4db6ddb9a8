// Emulated GPUs: librapt_emulator.so is a driver and a run-time compiler for machines without one
// (docs/emulator.md). All of launch/ and jit/ works with it as with NVIDIA's:
//
//   const Device device(emulated_driver(), emulated_ordinal(80));
//   const jit::Nvrtc compiler({emulator_library()});
#pragma once

#include <cstdint>
#include <string>

#include "launch/driver.hpp"

namespace rapt::cuda {

// The file: the one that the environment variable RAPT_EMULATOR names, else librapt_emulator.so
// beside this code or the program, or in a folder lib beside theirs. Throws Error(kMissingLibrary)
// with the places where there is none.
std::string emulator_library();

// Its driver, loaded at the first call; a call that throws is made again at the next.
const Driver& emulated_driver();

// The number of its device of that compute capability (10 * major + minor). Throws
// Error(kUnsupported) with those that it has.
int32_t emulated_ordinal(int32_t compute_capability);

// Whether a driver is the emulator's, as that of RAPT_LIBCUDA may be.
bool is_emulated(const Driver& driver);

}  // namespace rapt::cuda
