// Compiling at run time.
#pragma once

#include <string>
#include <vector>

#include "core/shared_library.hpp"
#include "jit/compiled_kernel.hpp"
#include "jit/kernel_source.hpp"

namespace rapt::jit {

// Tests have their own.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // Different for compilers that might make different images of one text.
  virtual const std::string& identity() const = 0;
  // Any number of threads at once.
  virtual CompiledKernel compile(const TranslationUnit& unit) const = 0;
};

// NVIDIA's run-time compiler, a library that needs neither a toolkit nor a GPU.
class Nvrtc : public Compiler {
 public:
  // The library: the one RAPT_NVRTC names, else version 13 or 12 where the loader or
  // /usr/local/cuda has them. Throws Error(kMissingLibrary) that names packages that bring it.
  static std::vector<std::string> default_libraries();
  explicit Nvrtc(const std::vector<std::string>& libraries = default_libraries());

  const std::string& identity() const override { return identity_; }
  // Throws Error(kUnsupported) for an architecture that this version does not know, and
  // Error(kInternal) with the compiler's log for text that does not compile.
  CompiledKernel compile(const TranslationUnit& unit) const override;

 private:
  using Result = int32_t;
  using Program = struct ProgramObject*;
  struct OwnedProgram;

  void check_call(Result result, const char* call) const;
  std::string log_of(Program program) const;

  SharedLibrary library_;
  std::string identity_;
  int32_t major_ = 0, minor_ = 0;
  std::vector<int32_t> architectures_;  // compute capabilities it knows

  // nvrtc.h of every version since 11.2.
  const char* (*get_error_string_)(Result result);
  Result (*create_program_)(Program* program, const char* text, const char* name,
                            int32_t num_headers, const char* const* headers,
                            const char* const* header_names);
  Result (*destroy_program_)(Program* program);
  Result (*compile_program_)(Program program, int32_t num_options, const char* const* options);
  Result (*get_log_size_)(Program program, size_t* bytes);
  Result (*get_log_)(Program program, char* log);
  Result (*get_cubin_size_)(Program program, size_t* bytes);
  Result (*get_cubin_)(Program program, char* cubin);
};

}  // namespace rapt::jit
