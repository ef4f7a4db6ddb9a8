// The order in which backends are tried.
#pragma once

#include <array>

#include "select/names.hpp"
#include "select/request.hpp"

namespace rapt {

using Priority = std::array<BackendId, kAllBackends.size()>;

// All backends, those of the device first, best first.
const Priority& priority(const Request& request);

}  // namespace rapt
