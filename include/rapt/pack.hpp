// Packs: files of kernels that were compiled ahead, so that known models start at once, also where
// there is no compiler.
//
//   rapt::build_pack("my.rpk", {.specs = {spec}, .architectures = {"80", "90"}});
//   rapt::Context context({.device = "cuda", .packs = {"my.rpk"}});
//
// Building needs NVRTC and no GPU. A pack is of this version of the library, byte for byte of its
// kernels' text: another version passes over what it compiles otherwise. `rapt pack` is this from
// the command line. The C interface only reads packs (rapt_context_options): they are made where
// software is built, not where it serves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/export.hpp"
#include "rapt/spec.hpp"

namespace rapt {

struct PackOptions {
  // What will be asked for. Of a spec only what kernels are compiled for matters: dtype, group,
  // head dims, page size, and whether there is a softcap, ALiBi, a custom mask, sinks or a scale
  // that is not above 0.
  std::vector<AttentionSpec> specs{};
  // "80", "89", "90a", "sm_100f": the devices whose kernels the pack has. All devices of a major
  // version ask for code of its first minor, but 8.9 for its own. So 80 stands for 8.0 and 8.6, 100
  // for 10.0 and 10.3; with a suffix for what such code runs on: 100a for 10.0 alone.
  std::vector<std::string> architectures{};
  int32_t num_threads = 0;  // that compile; 0 = the cores this process may use
  // Called with 0 first, then after each kernel, by one thread at a time; what it throws ends the
  // build. May be empty.
  std::function<void(int32_t done, int32_t total, std::string_view key)> progress{};
};

// A kernel as the compiler left it; bytes are of a thread unless said otherwise.
struct PackedKernel {
  std::string key;  // "attention_sm80 sm_90 alibi=false element=Bf16 ..."
  int32_t num_registers = 0;
  int32_t stack_bytes = 0;
  int32_t spill_store_bytes = 0, spill_load_bytes = 0;
  int32_t static_shared_bytes = 0, dynamic_shared_bytes = 0;  // of a block
  std::vector<std::string> messages;                          // of ptxas: "(C7519) ..."
  int64_t image_bytes = 0, packed_bytes = 0;                  // of the code, and as it is stored
  std::string hash;  // of all that decides the code but for the compiler: 32 hex digits
};

// Compiles all that plans, runs, write_kv() and merge() of these specs may ask for on devices of
// these architectures, and writes it to `path`; kernels that several specs share are compiled once.
// merge() is of their outputs, to their dtype; what check_device_indices takes is not among them.
// Gives what list_pack() does.
//
// Throws, and then leaves `path` as it was: Error(kInvalidArgument) for an architecture that no
// device has and for an option out of its bounds, Error(kUnsupported) for a spec without kernels on
// one of them, with select()'s reasons, Error(kMissingLibrary) without NVRTC, Error(kInternal) for
// kernels that spill or whose wgmma ptxas serialises, all of them named, Error(kIo) for a path that
// cannot be written, Error(kUnsupported) in a build without GPUs (RAPT_CUDA=OFF).
RAPT_API std::vector<PackedKernel> build_pack(const std::string& path, const PackOptions& options);

// The kernels of a pack, by key. Throws Error(kIo) that names the file for what is no pack of this
// version of the format, or damaged; Error(kUnsupported) as above.
RAPT_API std::vector<PackedKernel> list_pack(const std::string& path);

}  // namespace rapt
