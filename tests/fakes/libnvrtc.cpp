// A compiler that takes no time: its images are what the fake driver loads, "cubin NAME BYTES", and
// its log says registers. FAKE_NVRTC_SPILLS and FAKE_NVRTC_FAILS name kernels by a part of their
// keys, the first line of their text: those spill, or do not compile.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

using Result = int32_t;

struct ProgramObject {
  std::string text, log, image;
};
using Program = ProgramObject*;

namespace {

constexpr Result kSuccess = 0, kInvalidInput = 3, kCompilation = 6;
// As NVRTC 13.0 lists them.
constexpr std::array<int32_t, 12> kArchitectures = {75, 80,  86,  87,  88,  89,
                                                    90, 100, 103, 110, 120, 121};

bool names(const char* variable, std::string_view text) {
  const char* part = std::getenv(variable);
  return part && *part && text.substr(0, text.find('\n')).find(part) != text.npos;
}

std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == text.npos) return {};
  text.remove_prefix(at + begin.size());
  return text.substr(0, text.find(end));
}

// Of a unit whose entry is "... NAME(GRID_CONSTANT const PARAMS params) {" and that asserts what
// sizeof(PARAMS) is.
std::string image_of(std::string_view text) {
  constexpr std::string_view kParameter = "(GRID_CONSTANT const ";
  const size_t at = text.find(kParameter);
  if (at == text.npos) return {};
  const size_t begin = text.find_last_of(' ', at) + 1;
  const std::string name(text.substr(begin, at - begin));
  const std::string params(between(text, kParameter, " "));
  const std::string bytes(between(text, "static_assert((sizeof(" + params + ")) == ", "ll"));
  return "cubin " + name + " " + bytes + " // " + std::string(text.substr(3, text.find('\n')));
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(Result result) {
  return result == kCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_FAKE";
}
Result nvrtcVersion(int32_t* major, int32_t* minor) {
  return *major = 13, *minor = 0, kSuccess;
}
Result nvrtcGetNumSupportedArchs(int32_t* count) {
  return *count = static_cast<int32_t>(kArchitectures.size()), kSuccess;
}
Result nvrtcGetSupportedArchs(int32_t* numbers) {
  return std::copy(kArchitectures.begin(), kArchitectures.end(), numbers), kSuccess;
}
Result nvrtcCreateProgram(Program* program, const char* text, const char*, int32_t,
                          const char* const*, const char* const*) {
  return *program = new ProgramObject{text, {}, {}}, kSuccess;
}
Result nvrtcDestroyProgram(Program* program) {
  delete *program;
  return *program = nullptr, kSuccess;
}
Result nvrtcCompileProgram(Program program, int32_t, const char* const*) {
  if (names("FAKE_NVRTC_FAILS", program->text))
    return program->log = "kernel.cu(1): error: told to fail\n", kCompilation;
  program->image = image_of(program->text);
  const char* spills = names("FAKE_NVRTC_SPILLS", program->text) ? "24" : "0";
  program->log = "ptxas         .     0 bytes stack frame, " + std::string(spills) +
                 " bytes spill stores, " + spills + " bytes spill loads\n" +
                 "ptxas info    : Used 168 registers, used 1 barriers, 128 bytes smem\n";
  return program->image.empty() ? kInvalidInput : kSuccess;
}
Result nvrtcGetProgramLogSize(Program program, size_t* bytes) {
  return *bytes = program->log.size() + 1, kSuccess;
}
Result nvrtcGetProgramLog(Program program, char* log) {
  return std::memcpy(log, program->log.c_str(), program->log.size() + 1), kSuccess;
}
Result nvrtcGetCUBINSize(Program program, size_t* bytes) {
  return *bytes = program->image.size(), kSuccess;
}
Result nvrtcGetCUBIN(Program program, char* image) {
  return std::memcpy(image, program->image.data(), program->image.size()), kSuccess;
}

}  // extern "C"
