// Devices across the boundary.
#pragma once

#include "rapt/device.hpp"
#include "rapt/rapt.h"

namespace rapt::c_api {

rapt_device_info device_info_of(const DeviceInfo& device);
// The device of that name; null is this machine's CPU.
DeviceInfo device_named(const char* name);

}  // namespace rapt::c_api
