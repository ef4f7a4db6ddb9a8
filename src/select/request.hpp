// What is asked of the selector.
#pragma once

#include "rapt/select.hpp"

namespace rapt {

struct Request {
  const AttentionSpec& spec;
  const DeviceInfo& device;
  const SelectOptions& options;

  bool on_cuda() const { return device.kind == DeviceKind::kCuda; }
  // 9 for SM 9.0; 0 on a CPU.
  int32_t sm_major() const { return on_cuda() ? device.compute_capability / 10 : 0; }
  bool by_name() const;  // a backend was asked for
};

// Throws Error(kInvalidArgument) for a malformed spec or option.
void validate(const Request& request);

}  // namespace rapt
