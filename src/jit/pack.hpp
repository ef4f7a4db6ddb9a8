// A pack: many compiled kernels in one file, made ahead, so that known models start at once.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jit/compiled_kernel.hpp"
#include "jit/file.hpp"
#include "jit/kernel_source.hpp"

namespace rapt::jit {

struct PackRecord;

// The file, little-endian:
//   header   magic "RAPTPACK", version u32, kernels u32, bytes of the index u64, bytes of the data
//            u64, hash of all of these and of the index
//   index    a record per kernel, in the order of their keys' hashes; then keys and manifests
//   data     images, each compressed with zstd
// A manifest is the kernel's Resources and its dynamic shared memory, u32.
struct PackedKernel {
  std::string key;
  Hash128 unit_hash;  // of the TranslationUnit it was compiled from
  uint64_t image_bytes = 0, packed_bytes = 0;
  Resources resources;
  int32_t dynamic_shared_bytes = 0;  // of a block, as it is launched
};

class Pack {
 public:
  // Maps the file and proves its index; images are proved when they are asked for. Throws
  // Error(kIo) that names the file for what is no pack, damaged, or of another version.
  explicit Pack(const std::filesystem::path& path);

  enum class Answer { kFound, kAbsent, kStale, kDamaged };
  // kStale: compiled from another text, by another version of the library.
  Answer find(const TranslationUnit& unit, CompiledKernel& kernel) const;

  uint32_t num_kernels() const { return num_kernels_; }
  // All, without looking at their images, by key.
  std::vector<PackedKernel> kernels() const;

 private:
  PackRecord record(uint32_t number) const;
  std::string_view index_bytes(uint64_t offset, uint64_t bytes) const;

  MappedFile file_;
  uint32_t num_kernels_ = 0;
  std::string_view index_, data_;
};

class PackWriter {
 public:
  // Throws Error(kInvalidArgument) for a key that is there already.
  void add(const TranslationUnit& unit, const CompiledKernel& kernel,
           int32_t dynamic_shared_bytes = 0);
  // Equal kernels give equal files, in whatever order they came. Throws Error(kIo).
  void write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string key;
    Hash128 unit_hash;
    std::string packed;
    uint64_t image_bytes;
    std::string manifest;
  };
  std::map<Hash128, Entry> entries_;  // by the hash of the key
};

}  // namespace rapt::jit
