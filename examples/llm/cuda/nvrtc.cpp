#include "llm/cuda/nvrtc.hpp"

#include "llm/cuda/shared_library.hpp"
#include "llm/model/failure.hpp"

namespace llm::cuda {
namespace {

using NvrtcResult = int32_t;
using ProgramHandle = struct ProgramObject*;

// nvrtc.h of every version since 11.2.
struct Nvrtc {
  Nvrtc();
  void check(NvrtcResult result, const char* call) const {
    if (result != 0)
      fail(rapt::ErrorCode::kDevice, call, ": ", get_error_string(result), " (", result, ")");
  }

  const char* (*get_error_string)(NvrtcResult result);
  NvrtcResult (*create_program)(ProgramHandle* program, const char* text, const char* name,
                                int32_t num_headers, const char* const* headers,
                                const char* const* header_names);
  NvrtcResult (*destroy_program)(ProgramHandle* program);
  NvrtcResult (*compile_program)(ProgramHandle program, int32_t num_options,
                                 const char* const* options);
  NvrtcResult (*get_log_size)(ProgramHandle program, size_t* bytes);
  NvrtcResult (*get_log)(ProgramHandle program, char* log);
  NvrtcResult (*get_cubin_size)(ProgramHandle program, size_t* bytes);
  NvrtcResult (*get_cubin)(ProgramHandle program, char* cubin);
};

Nvrtc::Nvrtc() {
  const SharedLibrary library(
      {.named_by = "RAPT_NVRTC",
       .names = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
                 "/usr/local/cuda/lib64/libnvrtc.so.12"},
       .purpose = "needed to compile the element-wise kernels of the dense layers",
       .remedy = "install NVRTC (pip: nvidia-cuda-nvrtc, whose libnvrtc.so.13 the environment "
                 "variable RAPT_NVRTC names; apt: cuda-nvrtc-13-0), or keep the dense layers on "
                 "the host: --dense host"});
  library.find(get_error_string, "nvrtcGetErrorString");
  library.find(create_program, "nvrtcCreateProgram");
  library.find(destroy_program, "nvrtcDestroyProgram");
  library.find(compile_program, "nvrtcCompileProgram");
  library.find(get_log_size, "nvrtcGetProgramLogSize");
  library.find(get_log, "nvrtcGetProgramLog");
  library.find(get_cubin_size, "nvrtcGetCUBINSize");
  library.find(get_cubin, "nvrtcGetCUBIN");
}

struct OwnedProgram {
  const Nvrtc& nvrtc;
  ProgramHandle handle = nullptr;
  ~OwnedProgram() {
    if (handle) nvrtc.destroy_program(&handle);
  }
};

}  // namespace

std::string compile(std::string_view text, int32_t compute_capability) {
  const Nvrtc nvrtc;
  OwnedProgram program{nvrtc};
  nvrtc.check(nvrtc.create_program(&program.handle, std::string(text).c_str(), "kernels.cu", 0,
                                   nullptr, nullptr),
              "nvrtcCreateProgram");
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(compute_capability);
  const char* const options[] = {architecture.c_str(), "--std=c++20"};
  const NvrtcResult result = nvrtc.compile_program(program.handle, std::size(options), options);
  size_t bytes = 0;
  if (result != 0) {
    nvrtc.check(nvrtc.get_log_size(program.handle, &bytes), "nvrtcGetProgramLogSize");
    std::string log(bytes, '\0');  // ends in one
    nvrtc.check(nvrtc.get_log(program.handle, log.data()), "nvrtcGetProgramLog");
    fail(rapt::ErrorCode::kUnsupported, "the dense layers' kernels do not compile for sm_",
         compute_capability, ": ", nvrtc.get_error_string(result), "\n", log.c_str());
  }
  nvrtc.check(nvrtc.get_cubin_size(program.handle, &bytes), "nvrtcGetCUBINSize");
  std::string cubin(bytes, '\0');
  nvrtc.check(nvrtc.get_cubin(program.handle, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace llm::cuda
