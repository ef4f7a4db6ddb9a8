// Whole files: read, mapped, and written so that others see all of one or nothing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace rapt::jit {

// The file's bytes; nothing where it cannot be read or has more than `most_bytes`.
std::optional<std::string> read_file(const std::filesystem::path& path, size_t most_bytes);

// Temporary files of write_file() end so. Only a process that is killed leaves one behind.
inline constexpr std::string_view kTemporarySuffix = ".tmp";

// Who may read a file that is written: its owner alone, or everyone.
enum class Readers { kOwner, kAll };

// Replaces the file: writes a temporary one in the same folder, flushes it to the disk, and renames
// it. Throws Error(kIo) that says which step failed; then the folder is as it was.
void write_file(const std::filesystem::path& path, std::string_view bytes,
                Readers readers = Readers::kOwner);

// A file's bytes in memory, as the pages are touched.
class MappedFile {
 public:
  // Throws Error(kIo).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rapt::jit
