// The safetensors container: a JSON header that names tensors, then their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "llm/model/mapped_file.hpp"

namespace llm {

struct SafetensorsEntry {
  std::string dtype;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // within the file, of whatever length the header says
};

// The header's length, JSON and the extents are validated; whether an entry's bytes match its shape
// and dtype is its reader's to check.
class SafetensorsFile {
 public:
  // Recognised by a header length that fits the file and a header that begins with '{'.
  static bool recognises(std::span<const std::byte> bytes);
  explicit SafetensorsFile(FileView file);

  const std::string& path() const { return file_.path; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }

 private:
  FileView file_;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace llm
