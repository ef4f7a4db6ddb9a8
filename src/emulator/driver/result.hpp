// How the driver's functions answer.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "emulator/launch.hpp"
#include "launch/driver_abi.hpp"

namespace rapt::emulator {

using cuda::Result;

// "CUDA Driver API", cudaError_enum; the rest is in launch/driver_abi.hpp.
constexpr Result kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201;
constexpr Result kNoBinaryForGpu = 209, kInvalidHandle = 400, kNotFound = 500;
constexpr Result kLaunchFailed = 719, kNotSupported = 801, kUnknown = 999;

// What a call throws inside: its result, and more words on it than the result's own.
struct Refusal {
  Result result;
  std::string text;
};

template <typename... Parts>
void require(bool ok, Result result, const Parts&... parts) {
  if (!ok) throw Refusal{result, concat(parts...)};
}

// The words that cuGetErrorString has for `result` on this thread until it has others.
Result answer(Result result, std::string text);

// Nothing leaves a function of a C interface but its result.
template <typename Act>
Result answered(const Act& act) noexcept {
  try {
    act();
    return cuda::kSuccess;
  } catch (const Refusal& refusal) {
    return answer(refusal.result, refusal.text);
  } catch (const Failure& failure) {
    return answer(kLaunchFailed, failure.what());
  } catch (const Error& error) {
    return answer(cuda::kInvalidValue, error.what());
  } catch (const std::bad_alloc&) {
    return answer(cuda::kOutOfMemory, "the machine has no memory for it");
  } catch (const std::exception& error) {
    return answer(kUnknown, error.what());
  }
}

}  // namespace rapt::emulator
