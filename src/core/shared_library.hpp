// Libraries that are loaded when first needed, so that one binary starts on machines without them.
#pragma once

#include <string>
#include <vector>

#include "core/check.hpp"

namespace rapt {

// What to look for, and what to tell a user who lacks it.
struct LibraryWanted {
  std::vector<std::string> names;  // sonames or paths, in order of preference
  std::string purpose;             // "needed for CUDA devices"
  std::string remedy;              // "install the NVIDIA driver, or use the device cpu"
};

// A loaded library. It is never unloaded: drivers and compilers leave threads and exit handlers
// behind. Copies are the same library.
class SharedLibrary {
 public:
  // The first of the names that loads. Where none does: Error(kMissingLibrary) with each name, what
  // the loader said of it, the purpose and the remedy.
  explicit SharedLibrary(LibraryWanted wanted);

  const std::string& name() const { return name_; }
  // The file it was loaded from, as the loader names it.
  const std::string& path() const { return path_; }

  // Sets `function` to the library's symbol. Where it has none: Error(kMissingLibrary).
  template <typename Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
    if (!function) fail_without(symbol);
  }
  // The same, null where the library has no such symbol.
  template <typename Function>
  void find_optional(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  [[noreturn]] void fail_without(const char* symbol) const;

  LibraryWanted wanted_;
  void* handle_ = nullptr;
  std::string name_, path_;
};

}  // namespace rapt
