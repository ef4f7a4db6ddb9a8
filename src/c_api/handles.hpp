// The handles' insides. Each shares what it stands on, so that handles may be destroyed in any
// order.
#pragma once

#include <memory>

#include "rapt/attention.hpp"
#include "rapt/context.hpp"
#include "rapt/device_buffer.hpp"
#include "rapt/rapt.h"

struct rapt_context {
  std::shared_ptr<rapt::Context> context;
};

struct rapt_device_buffer {
  std::shared_ptr<rapt::Context> context;  // ends after the memory
  rapt::DeviceBuffer buffer;
};

struct rapt_attention {
  std::shared_ptr<rapt::Context> context;
  std::shared_ptr<rapt::Attention> attention;
};

struct rapt_plan {
  std::shared_ptr<rapt::Context> context;
  std::shared_ptr<rapt::Attention> attention;
  rapt::Plan plan;
};
