// The capability tables as Markdown, for docs/selection.md.
#pragma once

#include <string>

namespace rapt {

std::string capability_matrix();

}  // namespace rapt
