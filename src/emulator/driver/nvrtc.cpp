// NVRTC's functions, over the host's C++ compiler.
#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "emulator/driver/capabilities.hpp"
#include "emulator/driver/compiler.hpp"

namespace rapt::emulator {
namespace {

// "NVRTC", nvrtcResult.
using NvrtcResult = int32_t;
constexpr NvrtcResult kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5;
constexpr NvrtcResult kCompilation = 6, kInternalError = 11;

struct Program {
  HostCompiler::Source source;
  HostCompiler::Result compiled;
};

thread_local std::string last_error;

template <typename Act>
NvrtcResult compiler_answer(const Act& act) noexcept {
  try {
    return act();
  } catch (const std::exception& error) {
    last_error = error.what();
    return kInternalError;
  }
}

// Of NVRTC's options one decides anything here; the others of jit::translation_unit() concern
// ptxas and dialects that host text has anyway.
bool understood(std::string_view option, jit::Architecture& architecture) {
  constexpr std::string_view kArchitecture = "--gpu-architecture=";
  if (option.substr(0, kArchitecture.size()) == kArchitecture) {
    architecture = jit::parse_architecture(option.substr(kArchitecture.size()));
    return true;
  }
  return option == "--std=c++20" || option == "--device-as-default-execution-space" ||
         option == "--ptxas-options=-v";
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* nvrtcGetErrorString(NvrtcResult result) {
  switch (result) {
    case kSuccess:
      return "NVRTC_SUCCESS";
    case kInvalidInput:
      return "NVRTC_ERROR_INVALID_INPUT";
    case kInvalidProgram:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    case kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    case kInternalError:
      return last_error.empty() ? "NVRTC_ERROR_INTERNAL_ERROR" : last_error.c_str();
    default:
      return "NVRTC_ERROR unknown";
  }
}

// 0.N, unlike any version of NVIDIA's; N is of all that decides what an image has.
NvrtcResult nvrtcVersion(int32_t* major, int32_t* minor) {
  return compiler_answer([&] {
    constexpr uint64_t kPositive = 0x7fffffff;
    *minor = static_cast<int32_t>(HostCompiler().identity() & kPositive);
    *major = 0;
    return kSuccess;
  });
}

NvrtcResult nvrtcGetNumSupportedArchs(int32_t* count) {
  return *count = static_cast<int32_t>(std::size(kComputeCapabilities)), kSuccess;
}
NvrtcResult nvrtcGetSupportedArchs(int32_t* numbers) {
  std::memcpy(numbers, kComputeCapabilities, sizeof kComputeCapabilities);
  return kSuccess;
}

NvrtcResult nvrtcCreateProgram(Program** program, const char* text, const char*,
                               int32_t num_headers, const char* const* headers,
                               const char* const* names) {
  return compiler_answer([&] {
    auto made = std::make_unique<Program>();
    made->source.text = text;
    for (int32_t i = 0; i < num_headers; i++)
      made->source.headers.emplace_back(names[i], headers[i]);
    *program = made.release();
    return kSuccess;
  });
}
NvrtcResult nvrtcDestroyProgram(Program** program) {
  delete std::exchange(*program, nullptr);
  return kSuccess;
}

NvrtcResult nvrtcCompileProgram(Program* program, int32_t num_options, const char* const* options) {
  return compiler_answer([&] {
    HostCompiler::Source& source = program->source;
    for (int32_t i = 0; i < num_options; i++)
      if (!understood(options[i], source.architecture)) {
        program->compiled.log = concat("option ", options[i], " is not the emulator's\n");
        return kInvalidOption;
      }
    program->compiled = HostCompiler().compile(source);
    return program->compiled.ok ? kSuccess : kCompilation;
  });
}

NvrtcResult nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  return *bytes = program->compiled.log.size() + 1, kSuccess;
}
NvrtcResult nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->compiled.log.c_str(), program->compiled.log.size() + 1);
  return kSuccess;
}
NvrtcResult nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  if (!program->compiled.ok) return kInvalidProgram;
  return *bytes = program->compiled.image.size(), kSuccess;
}
NvrtcResult nvrtcGetCUBIN(Program* program, char* image) {
  if (!program->compiled.ok) return kInvalidProgram;
  std::ranges::copy(program->compiled.image, image);
  return kSuccess;
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
