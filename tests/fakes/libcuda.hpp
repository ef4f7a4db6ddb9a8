// What a test sees of the fake libcuda.so.1: it writes down every call, keeps device memory on the
// host, and fails where it is told to. Its devices are one H200 and one A100.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/driver_abi.hpp"

namespace rapt::fake {

// A stream of the caller's, an event of anyone's; their addresses are the handles.
struct Stream {
  cuda::ContextHandle context = nullptr;
  cuda::CaptureStatus capture = cuda::CaptureStatus::kNone;
  uint64_t capture_id = 0;
};
struct Event {
  cuda::Result state = cuda::kSuccess;  // what cuEventQuery answers
};

struct Launch {
  std::string kernel;
  cuda::LaunchConfig config;  // its attributes point nowhere
  std::vector<cuda::LaunchAttribute> attributes;
  std::vector<std::string> parameters;  // the bytes of each
};

// A module's image is text: "cubin NAME BYTES BYTES ...", the bytes of each parameter of its
// kernel.
struct Control {
  std::vector<std::string> calls;  // their names, in order
  std::vector<Launch> launches;
  // By the name of a call: this result, instead of doing anything.
  std::map<std::string, cuda::Result> failures;
  std::map<cuda::DevicePointer, size_t> device_memory;  // what is allocated, with its bytes
  std::map<void*, size_t> host_memory;
  std::map<int32_t, int32_t> function_attributes;  // as set
  std::array<int32_t, 2> retained = {};            // primary contexts, by device
  int32_t num_modules = 0, num_graphs = 0;         // executable graphs too
  std::vector<std::unique_ptr<Event>> events;      // made by cuEventCreate
  std::array<uint64_t, 16> tensor_map = {};        // the last one encoded, its arguments in order
};

}  // namespace rapt::fake

extern "C" {
// The state, emptied by every cuInit.
rapt::fake::Control* rapt_fake_control();
rapt::cuda::ContextHandle rapt_fake_primary_context(int32_t ordinal);
}
