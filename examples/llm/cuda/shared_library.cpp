#include "llm/cuda/shared_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "llm/model/failure.hpp"

namespace llm::cuda {

SharedLibrary::SharedLibrary(Wanted wanted) : wanted_(std::move(wanted)) {
  if (const char* named = std::getenv(wanted_.named_by); named && *named) wanted_.names = {named};
  std::string refusals;
  for (const std::string& name : wanted_.names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_) {
      name_ = name;
      return;
    }
    const char* said = dlerror();
    refusals += (refusals.empty() ? "" : "; ") + name + " (" + (said ? said : "no reason") + ")";
  }
  fail(rapt::ErrorCode::kMissingLibrary, "could not load ", refusals, ": ", wanted_.purpose, "; ",
       wanted_.remedy);
}

void* SharedLibrary::address(const char* symbol) const {
  void* found = dlsym(handle_, symbol);
  if (!found)
    fail(rapt::ErrorCode::kMissingLibrary, name_, " has no ", symbol,
         ", it is too old or another library: ", wanted_.purpose, "; ", wanted_.remedy);
  return found;
}

}  // namespace llm::cuda
