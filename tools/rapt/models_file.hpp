// Models as `rapt pack` reads them (shapes/core.txt): what of their attention kernels are compiled
// for.
#pragma once

#include <string>
#include <vector>

#include "rapt/spec.hpp"

namespace rapt_tool {

// A line is `name heads=32/8 dim=128 key=value ...`; lists a,b,c stand for every combination.
// Throws rapt::Error(kIo) for a file that cannot be read, kInvalidArgument that names file, line
// and word for one that is malformed or names no model.
std::vector<rapt::AttentionSpec> load_models(const std::string& path);

}  // namespace rapt_tool
