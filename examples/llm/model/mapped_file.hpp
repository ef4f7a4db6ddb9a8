// A file's bytes, mapped read-only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace llm {

// Bytes of a file in memory, and its path for messages. Owns neither.
struct FileView {
  std::span<const std::byte> bytes;
  const std::string& path;
};

// The bytes stay valid as long as the object and the file's length do: a file that another process
// shortens meanwhile kills this one, as with every mapping.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  FileView view() const { return {bytes_, path_}; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace llm
