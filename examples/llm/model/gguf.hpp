// GGUF, version 2 and 3: typed metadata and tensors in one file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "llm/model/byte_reader.hpp"
#include "llm/model/mapped_file.hpp"

namespace llm {

enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// The elements stay in the file: numbers one after the other, strings with their lengths.
struct GgufArray {
  GgufType type;
  uint64_t count;
  std::span<const std::byte> bytes;
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  static constexpr uint32_t kMaxRank = 4;

  std::array<uint64_t, kMaxRank> shape;  // fastest axis first; 1 past the rank
  uint32_t rank;
  uint32_t type;    // ggml's number of the element format
  uint64_t offset;  // bytes from the start of the data
};

// Everything is validated while parsing except tensors' formats and extents, which matter only to
// those who read them. Views into the file's bytes, which must outlive it.
class GgufFile {
 public:
  static bool recognises(std::span<const std::byte> bytes);
  explicit GgufFile(FileView file);

  const std::string& path() const { return file_.path; }

  // The value of `key`, or nothing; kIo if it is of another kind. Integers of any width and sign
  // fit if the value does.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<float>> reals(std::string_view key) const;  // float32 arrays
  // The value that must be there.
  int64_t required_integer(std::string_view key) const;

  const std::map<std::string_view, GgufTensor>& tensors() const { return tensors_; }
  // The tensor's `num_bytes` bytes; kIo if the file does not hold them.
  std::span<const std::byte> tensor_bytes(std::string_view name, const GgufTensor& tensor,
                                          uint64_t num_bytes) const;

 private:
  void parse_metadata(ByteReader& reader, uint64_t count);
  void parse_tensors(ByteReader& reader, uint64_t count);
  const GgufValue* find(std::string_view key) const;
  const GgufArray* find_array(std::string_view key) const;
  [[noreturn]] void fail_kind(std::string_view key, const char* wanted) const;

  FileView file_;
  std::unordered_map<std::string_view, GgufValue> metadata_;
  std::map<std::string_view, GgufTensor> tensors_;
  std::span<const std::byte> data_;  // of all tensors
  uint64_t alignment_ = 32;          // of tensors in the data
};

}  // namespace llm
