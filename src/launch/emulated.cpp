#include "launch/emulated.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "launch/device.hpp"

namespace rapt::cuda {
namespace {

constexpr const char* kFile = "librapt_emulator.so";
constexpr const char* kNamedBy = "RAPT_EMULATOR";

// Of the library or the program that this code is in.
std::filesystem::path own_file() {
  Dl_info info = {};
  static const char here = 0;
  std::error_code ignored;
  if (!dladdr(&here, &info) || !info.dli_fname) return {};
  return std::filesystem::canonical(info.dli_fname, ignored);
}

}  // namespace

std::string emulator_library() {
  std::error_code ignored;
  if (const char* named = std::getenv(kNamedBy); named && *named) {
    if (std::filesystem::exists(named, ignored)) return named;
    fail(ErrorCode::kMissingLibrary, "the environment variable ", kNamedBy, " names ", named,
         " as the emulator: there is no such file");
  }
  std::string places;
  for (const std::filesystem::path& file :
       {own_file(), std::filesystem::canonical("/proc/self/exe", ignored)})
    for (const char* folder : {".", "../lib"}) {
      if (file.empty()) continue;
      const std::filesystem::path place = (file.parent_path() / folder / kFile).lexically_normal();
      if (std::filesystem::exists(place, ignored)) return place.string();
      if (places.find(place.string()) == places.npos)
        places += concat(places.empty() ? "" : ", ", place.string());
    }
  fail(ErrorCode::kMissingLibrary, "could not find the emulator, ", places,
       ": needed for every emulated device; build Rapt with RAPT_EMULATOR=ON, or name the file in "
       "the environment variable ",
       kNamedBy);
}

const Driver& emulated_driver() {
  static const Driver loaded(emulator_library());
  return loaded;
}

bool is_emulated(const Driver& driver) {
  return std::filesystem::path(driver.path).filename() == kFile;
}

int32_t emulated_ordinal(int32_t compute_capability) {
  const Driver& driver = emulated_driver();
  std::string known;
  for (int32_t ordinal = 0; ordinal < device_count(driver); ordinal++) {
    const int32_t its = Device(driver, ordinal).info().compute_capability;
    if (its == compute_capability) return ordinal;
    known += concat(known.empty() ? "" : ", ", its);
  }
  fail(ErrorCode::kUnsupported, "no emulated device of compute capability ", compute_capability,
       ", there are ", known);
}

}  // namespace rapt::cuda
