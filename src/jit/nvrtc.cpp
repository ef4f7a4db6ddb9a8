#include "jit/nvrtc.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace rapt::jit {
namespace {

constexpr int32_t kSuccess = 0;
constexpr size_t kMostOfLog = 16 * 1024;  // bytes of it in an error: the first errors

LibraryWanted wanted(const std::vector<std::string>& libraries) {
  return {libraries, "needed to compile kernels that no pack and no cache has",
          "install NVRTC (pip: nvidia-cuda-nvrtc, whose libnvrtc.so.13 the environment variable "
          "RAPT_NVRTC names; apt: cuda-nvrtc-13-0), or a pack with the kernel"};
}

}  // namespace

struct Nvrtc::OwnedProgram {
  const Nvrtc& nvrtc;
  Program handle = nullptr;
  ~OwnedProgram() {
    if (handle) nvrtc.destroy_program_(&handle);
  }
};

std::vector<std::string> Nvrtc::default_libraries() {
  const char* named = std::getenv("RAPT_NVRTC");
  if (named && *named) return {named};
  return {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
          "/usr/local/cuda/lib64/libnvrtc.so.12"};
}

Nvrtc::Nvrtc(const std::vector<std::string>& libraries) : library_(wanted(libraries)) {
  Result (*version)(int32_t * major, int32_t * minor) = nullptr;
  Result (*num_architectures)(int32_t * count) = nullptr;
  Result (*architectures)(int32_t * numbers) = nullptr;
  library_.find(get_error_string_, "nvrtcGetErrorString");
  library_.find(version, "nvrtcVersion");
  library_.find(num_architectures, "nvrtcGetNumSupportedArchs");
  library_.find(architectures, "nvrtcGetSupportedArchs");
  library_.find(create_program_, "nvrtcCreateProgram");
  library_.find(destroy_program_, "nvrtcDestroyProgram");
  library_.find(compile_program_, "nvrtcCompileProgram");
  library_.find(get_log_size_, "nvrtcGetProgramLogSize");
  library_.find(get_log_, "nvrtcGetProgramLog");
  library_.find(get_cubin_size_, "nvrtcGetCUBINSize");
  library_.find(get_cubin_, "nvrtcGetCUBIN");
  check_call(version(&major_, &minor_), "nvrtcVersion");
  int32_t count = 0;
  check_call(num_architectures(&count), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<size_t>(count));
  check_call(architectures(architectures_.data()), "nvrtcGetSupportedArchs");
  // The version has no patch number; updates differ in size.
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(library_.path(), ignored);
  identity_ = concat("nvrtc ", major_, ".", minor_, ", ", ignored ? 0 : bytes, " bytes");
}

void Nvrtc::check_call(Result result, const char* call) const {
  if (result != kSuccess)
    fail(ErrorCode::kInternal, call, ": ", get_error_string_(result), " (", result, ")");
}

std::string Nvrtc::log_of(Program program) const {
  size_t bytes = 0;  // with the ending zero
  check_call(get_log_size_(program, &bytes), "nvrtcGetProgramLogSize");
  std::string log(bytes, '\0');
  check_call(get_log_(program, log.data()), "nvrtcGetProgramLog");
  return log.substr(0, log.find('\0'));
}

CompiledKernel Nvrtc::compile(const TranslationUnit& unit) const {
  if (std::find(architectures_.begin(), architectures_.end(), unit.architecture.number) ==
      architectures_.end())
    fail(ErrorCode::kUnsupported, "kernel ", unit.key, ": NVRTC ", major_, ".", minor_, " (",
         library_.path(), ") does not know ", unit.architecture.name(), ", it knows sm_",
         architectures_.empty() ? 0 : architectures_.front(), " to sm_",
         architectures_.empty() ? 0 : architectures_.back(),
         ": install a version of that architecture's time");
  std::vector<std::string> texts, names;  // ended by zeros
  for (const HeaderText& header : unit.headers) {
    names.emplace_back(header.name);
    texts.emplace_back(header.text);
  }
  const auto pointers = [](const std::vector<std::string>& strings) {
    std::vector<const char*> all;
    all.reserve(strings.size());
    for (const std::string& one : strings) all.push_back(one.c_str());
    return all;
  };
  const std::vector<const char*> header_texts = pointers(texts), header_names = pointers(names),
                                 options = pointers(unit.options);
  OwnedProgram program{*this};
  check_call(
      create_program_(&program.handle, unit.text.c_str(), "kernel.cu",
                      static_cast<int32_t>(names.size()), header_texts.data(), header_names.data()),
      "nvrtcCreateProgram");
  const Result result =
      compile_program_(program.handle, static_cast<int32_t>(options.size()), options.data());
  const std::string log = log_of(program.handle);
  if (result != kSuccess)
    fail(ErrorCode::kInternal, "kernel ", unit.key, " does not compile with NVRTC ", major_, ".",
         minor_, " (", library_.path(), "): ", get_error_string_(result), "\n",
         log.substr(0, kMostOfLog));
  CompiledKernel compiled;
  size_t bytes = 0;
  check_call(get_cubin_size_(program.handle, &bytes), "nvrtcGetCUBINSize");
  compiled.image.resize(bytes);
  check_call(get_cubin_(program.handle, compiled.image.data()), "nvrtcGetCUBIN");
  compiled.resources = parse_ptxas(log);
  return compiled;
}

}  // namespace rapt::jit
