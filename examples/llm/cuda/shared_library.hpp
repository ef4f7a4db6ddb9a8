// A library that is loaded when first needed, so that one binary starts on machines without it.
#pragma once

#include <string>
#include <vector>

namespace llm::cuda {

class SharedLibrary {
 public:
  struct Wanted {
    const char* named_by;            // environment variable that names the file
    std::vector<std::string> names;  // else these, in order of preference
    const char* purpose;
    const char* remedy;
  };

  // The first of the names that loads; it is never unloaded. Where none does:
  // rapt::Error(kMissingLibrary) with each name, what the loader said, the purpose and the remedy.
  explicit SharedLibrary(Wanted wanted);

  const std::string& name() const { return name_; }

  // Sets `function` to the symbol. Where there is none: rapt::Error(kMissingLibrary).
  template <typename Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  Wanted wanted_;
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace llm::cuda
