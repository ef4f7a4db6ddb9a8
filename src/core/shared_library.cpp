#include "core/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <utility>

namespace rapt {
namespace {

std::string said_by_loader() {
  const char* text = dlerror();
  return text ? text : "no reason given";
}

}  // namespace

SharedLibrary::SharedLibrary(LibraryWanted wanted) : wanted_(std::move(wanted)) {
  std::string refusals;
  for (const std::string& name : wanted_.names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_) {
      name_ = name;
      const link_map* map = nullptr;
      if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map) path_ = map->l_name;
      return;
    }
    refusals += concat(refusals.empty() ? "" : "; ", name, " (", said_by_loader(), ")");
  }
  fail(ErrorCode::kMissingLibrary, "could not load ", refusals, ": ", wanted_.purpose, "; ",
       wanted_.remedy);
}

void* SharedLibrary::address(const char* symbol) const {
  return dlsym(handle_, symbol);
}

void SharedLibrary::fail_without(const char* symbol) const {
  fail(ErrorCode::kMissingLibrary, path_.empty() ? name_ : path_, " has no ", symbol, " (",
       said_by_loader(), "), it is too old or another library: ", wanted_.purpose, "; ",
       wanted_.remedy);
}

}  // namespace rapt
