#include "emulator/driver/result.hpp"

#include <iterator>

namespace rapt::emulator {
namespace {

struct Known {
  Result result;
  const char *name, *text;
};

constexpr Known kKnown[] = {
    {cuda::kSuccess, "CUDA_SUCCESS", "no error"},
    {cuda::kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {cuda::kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "there is no such emulated device"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "not an image of the emulator's"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "no context is current"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image is for another architecture"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "there is none of that name"},
    {cuda::kNotReady, "CUDA_ERROR_NOT_READY", "not ready"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "the kernel failed"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "the emulator does not have it"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Known* find(Result result) {
  for (const Known& known : kKnown)
    if (known.result == result) return &known;
  return nullptr;
}

thread_local Refusal last_said{cuda::kSuccess, ""};

}  // namespace

Result answer(Result result, std::string text) {
  last_said = {result, std::move(text)};
  return result;
}

#pragma GCC visibility push(default)
extern "C" {

Result cuGetErrorName(Result result, const char** name) {
  const Known* known = find(result);
  *name = known ? known->name : nullptr;
  return known ? cuda::kSuccess : cuda::kInvalidValue;
}

Result cuGetErrorString(Result result, const char** text) {
  const Known* known = find(result);
  *text = known ? known->text : nullptr;
  if (known && result == last_said.result && !last_said.text.empty())
    *text = last_said.text.c_str();
  return known ? cuda::kSuccess : cuda::kInvalidValue;
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
