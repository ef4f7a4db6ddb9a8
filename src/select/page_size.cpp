#include "select/page_size.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "select/names.hpp"

namespace rapt {

bool PageSizes::contains(int32_t page_size) const {
  if (page_size < 1) return false;
  return (multiple_of > 0 && page_size % multiple_of == 0) ||
         std::find(listed.begin(), listed.end(), page_size) != listed.end();
}

// Only listed sizes are tried below the manager's own: where a multiple-of rule holds for a divisor
// of it, the rule holds for the manager's size as well.
std::optional<int32_t> find_common_page_size(std::span<const PageSizes> layers,
                                             int32_t manager_page_size) {
  const auto all_read = [&](int32_t size) {
    return std::all_of(layers.begin(), layers.end(),
                       [&](const PageSizes& sizes) { return sizes.contains(size); });
  };
  if (all_read(manager_page_size)) return manager_page_size;
  std::optional<int32_t> best;
  for (const PageSizes& sizes : layers)
    for (int32_t size : sizes.listed)
      if (manager_page_size % size == 0 && all_read(size) && size > best.value_or(0)) best = size;
  return best;
}

int32_t common_page_size(std::span<const PageSizes> layers, int32_t manager_page_size) {
  check(manager_page_size >= 1, "manager_page_size is ", manager_page_size, ": must be at least 1");
  const std::optional<int32_t> size = find_common_page_size(layers, manager_page_size);
  if (size) return *size;
  std::string rules;
  for (const PageSizes& sizes : layers) rules += (rules.empty() ? "" : "; ") + to_string(sizes);
  fail(ErrorCode::kUnsupported, "manager_page_size is ", manager_page_size,
       ": no size that divides it is read by all layers, which read ", rules);
}

}  // namespace rapt
