// What compiling a kernel gives: an image for the driver, and what it takes of an SM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/bytes.hpp"

namespace rapt::jit {

// As ptxas -v says it; bytes of a thread, but shared memory, which is of a block.
struct Resources {
  int32_t num_registers = 0;
  int32_t stack_bytes = 0;
  int32_t spill_store_bytes = 0, spill_load_bytes = 0;
  int32_t static_shared_bytes = 0;
  std::vector<std::string> messages;  // warnings, and remarks with a code, like "(C7510) ..."

  bool operator==(const Resources&) const = default;
};

// From the compiler's log. Spills of several functions add up.
Resources parse_ptxas(std::string_view log);

// What a packed kernel must not have, a sentence each: spills, wgmma that ptxas serialises (C7510,
// C7511, C7512) or waits for where the text does not (C7517).
std::vector<std::string> problems(const Resources& resources);

struct CompiledKernel {
  std::string image;  // cubin
  Resources resources;
};

void write(ByteWriter& to, const Resources& resources);
Resources read_resources(ByteReader& from);

}  // namespace rapt::jit
