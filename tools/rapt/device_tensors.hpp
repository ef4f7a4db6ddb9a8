// A step's tensors where the context's device reads and writes them.
#pragma once

#include <cstddef>
#include <map>

#include "rapt/rapt.hpp"
#include "step.hpp"
#include "step_tensors.hpp"

namespace rapt_tool {

// On the CPU the tensors themselves; on a GPU copies of them, made at their first use.
class DeviceTensors {
 public:
  // Both must outlive it, and the tensors stay as they are but through fetch_outputs().
  DeviceTensors(rapt::Context& context, StepTensors& tensors);

  // Everything but the workspace.
  rapt::RunArgs run_args(const Step& step);
  // Fills the cache, through the given backend's own writer; nothing to do for ragged steps.
  void fill_cache(const rapt::Attention& attention);
  // Waits for the device, and brings out and lse to the tensors.
  void fetch_outputs();

 private:
  rapt::TensorView view(const HostTensor& tensor);
  rapt::KvCacheView cache();
  void fetch(HostTensor& tensor);

  rapt::Context& context_;
  StepTensors& tensors_;
  std::map<const HostTensor*, rapt::DeviceBuffer> copies_;
};

}  // namespace rapt_tool
