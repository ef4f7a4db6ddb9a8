// The checks of one capability row against a request.
#pragma once

#include <string>
#include <vector>

#include "select/capability.hpp"
#include "select/request.hpp"

namespace rapt {

// Why the row can't do it: every check is made, in a fixed order, and each reason reads "argument
// is value: bound". Empty = it can. Whether the kernels are built is not asked here.
std::vector<std::string> reasons_against(const Capability& row, const Request& request);

// Parts of it that decide which of a backend's rows is the one to judge.
bool runs_on(const Capability& row, const DeviceInfo& device);
bool takes_head_dims(const Capability& row, const AttentionSpec& spec);

}  // namespace rapt
