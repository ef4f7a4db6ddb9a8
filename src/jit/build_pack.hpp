// Kernels compiled side by side into a pack.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "jit/nvrtc.hpp"
#include "jit/pack.hpp"

namespace rapt::jit {

// What a pack is to have.
struct PackUnit {
  TranslationUnit unit;
  int32_t dynamic_shared_bytes = 0;  // of a block
};

struct BuildPackOptions {
  int32_t num_threads = 1;  // the caller's included
  // Called with 0 first, then after each kernel, by one thread at a time; may be empty.
  std::function<void(int32_t done, int32_t total, std::string_view key)> progress{};
};

// Compiles the units, those of one key once, and writes the file when all are sound. What compiler
// or progress throws ends it. Throws Error(kInternal) with every kernel that has problems() and
// each of them, Error(kIo) for a path that cannot be written, before it compiles where the folder
// is missing. Then there is no new file.
void build_pack(const std::filesystem::path& path, std::span<const PackUnit> units,
                const Compiler& compiler, const BuildPackOptions& options);

}  // namespace rapt::jit
