// Which page size kernels read of what the caller allocates.
#pragma once

#include <optional>
#include <span>

#include "rapt/select.hpp"

namespace rapt {

// common_page_size() without the error.
std::optional<int32_t> find_common_page_size(std::span<const PageSizes> layers,
                                             int32_t manager_page_size);

}  // namespace rapt
