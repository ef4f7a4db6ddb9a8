#include "select/request.hpp"

#include <algorithm>
#include <cctype>

#include "core/check.hpp"
#include "select/names.hpp"

namespace rapt {

bool Request::by_name() const {
  constexpr std::string_view kAuto = "auto";
  const std::string& name = options.backend;
  return !name.empty() &&
         !std::equal(name.begin(), name.end(), kAuto.begin(), kAuto.end(),
                     [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

void validate(const Request& request) {
  const SelectOptions& options = request.options;
  validate(request.spec);
  if (request.by_name())
    check(parse_backend(options.backend).has_value(), "backend is \"", options.backend,
          "\": must be auto, ", list_of(kAllBackends));
  check(options.layout.value_or(KvLayout::kNHD) <= KvLayout::kHND, "layout is ",
        static_cast<int>(*options.layout), ": must be kNHD or kHND");
  const int32_t version = options.flash_attention_version.value_or(2);
  check(2 <= version && version <= 4, "flash_attention_version is ", version,
        ": must be 2, 3 or 4");
  check(options.context_parallel_size >= 1, "context_parallel_size is ",
        options.context_parallel_size, ": must be at least 1");
  const int32_t manager = options.manager_page_size, page = request.spec.page_size;
  check(manager >= 0, "manager_page_size is ", manager, ": must be at least 0, 0 for page_size");
  if (page == 0)
    check(manager == 0, "manager_page_size is ", manager,
          ": must be 0 where page_size is 0, for there is no cache");
  else
    check(manager % page == 0, "manager_page_size is ", manager,
          ": must be a multiple of page_size ", page);
}

}  // namespace rapt
