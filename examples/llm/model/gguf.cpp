#include "llm/model/gguf.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace llm {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
// The fewest bytes that one entry takes: they bound counts before a loop trusts them.
constexpr uint64_t kMinMetadataBytes = 8 + 4 + 1;        // key length, type, a one-byte value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name length, rank, axis, type, offset

void check_count(const ByteReader& reader, const char* what, uint64_t count, uint64_t min_bytes) {
  check_io(count <= reader.left() / min_bytes, reader.name(), ": ", what, " is ", count,
           ", but the ", reader.left(), " bytes left hold at most ", reader.left() / min_bytes,
           ": the file is truncated or not what it says");
}

std::string_view read_text(ByteReader& reader, const char* what) {
  return reader.text(reader.scalar<uint64_t>(what), what);
}

// Bytes of a number or bool; 0 for strings, arrays and types that GGUF does not have.
uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

GgufArray read_array(ByteReader& reader, std::span<const std::byte> file) {
  GgufArray array{};
  array.type = static_cast<GgufType>(reader.scalar<uint32_t>("an array's element type"));
  array.count = reader.scalar<uint64_t>("an array's length");
  const size_t start = reader.position();
  if (array.type == GgufType::kString) {
    check_count(reader, "an array's length", array.count, sizeof(uint64_t));
    for (uint64_t i = 0; i < array.count; ++i) read_text(reader, "a string of an array");
  } else {
    const uint64_t bytes = scalar_bytes(array.type);
    check_supported(array.type != GgufType::kArray, reader.name(), ": the array at byte ", start,
                    " holds arrays, which no key read here needs");
    check_io(bytes > 0, reader.name(), ": the array at byte ", start, " has elements of type ",
             static_cast<uint32_t>(array.type), ", which GGUF does not have");
    check_count(reader, "an array's length", array.count, bytes);
    reader.take(array.count * bytes, "an array");
  }
  array.bytes = file.subspan(start, reader.position() - start);
  return array;
}

GgufValue read_value(ByteReader& reader, GgufType type, std::string_view key,
                     std::span<const std::byte> file) {
  constexpr const char* kWhat = "a metadata value";
  switch (type) {
    case GgufType::kUint8:
      return uint64_t{reader.scalar<uint8_t>(kWhat)};
    case GgufType::kInt8:
      return int64_t{reader.scalar<int8_t>(kWhat)};
    case GgufType::kUint16:
      return uint64_t{reader.scalar<uint16_t>(kWhat)};
    case GgufType::kInt16:
      return int64_t{reader.scalar<int16_t>(kWhat)};
    case GgufType::kUint32:
      return uint64_t{reader.scalar<uint32_t>(kWhat)};
    case GgufType::kInt32:
      return int64_t{reader.scalar<int32_t>(kWhat)};
    case GgufType::kFloat32:
      return double{reader.scalar<float>(kWhat)};
    case GgufType::kBool:
      return reader.scalar<uint8_t>(kWhat) != 0;
    case GgufType::kString:
      return read_text(reader, kWhat);
    case GgufType::kArray:
      return read_array(reader, file);
    case GgufType::kUint64:
      return reader.scalar<uint64_t>(kWhat);
    case GgufType::kInt64:
      return reader.scalar<int64_t>(kWhat);
    case GgufType::kFloat64:
      return reader.scalar<double>(kWhat);
  }
  fail_io(reader.name(), ": key ", key, " has a value of type ", static_cast<uint32_t>(type),
          ", which GGUF does not have");
}

std::optional<int64_t> as_integer(const GgufValue& value) {
  if (const auto* with_sign = std::get_if<int64_t>(&value)) return *with_sign;
  if (const auto* without = std::get_if<uint64_t>(&value)) {
    if (*without <= kMaxInt64) return static_cast<int64_t>(*without);
  }
  return std::nullopt;
}

}  // namespace

bool GgufFile::recognises(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

GgufFile::GgufFile(FileView file) : file_(file) {
  ByteReader reader(file.bytes, file.path);
  check_io(reader.text(kMagic.size(), "the magic number") == kMagic, file.path,
           ": does not begin with GGUF");
  const auto version = reader.scalar<uint32_t>("the version");
  check_supported(version == 2 || version == 3, file.path, ": GGUF version is ", version,
                  (version & 0xffffu) == 0 ? " (a big-endian file)" : "", ", must be 2 or 3");
  const auto num_tensors = reader.scalar<uint64_t>("the number of tensors");
  const auto num_keys = reader.scalar<uint64_t>("the number of keys");
  parse_metadata(reader, num_keys);
  parse_tensors(reader, num_tensors);
}

void GgufFile::parse_metadata(ByteReader& reader, uint64_t count) {
  check_count(reader, "the number of keys", count, kMinMetadataBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = read_text(reader, "a key");
    const auto type = static_cast<GgufType>(reader.scalar<uint32_t>("a value's type"));
    const bool is_new =
        metadata_.try_emplace(key, read_value(reader, type, key, file_.bytes)).second;
    check_io(is_new, path(), ": key ", key, " appears twice");
  }
  if (const auto alignment = integer("general.alignment")) {
    constexpr int64_t kMaxAlignment = 1 << 20;
    check_io(
        *alignment >= 8 && *alignment <= kMaxAlignment && std::has_single_bit(uint64_t(*alignment)),
        path(), ": general.alignment is ", *alignment, ", must be a power of two in [8, ",
        kMaxAlignment, "]");
    alignment_ = *alignment;
  }
}

void GgufFile::parse_tensors(ByteReader& reader, uint64_t count) {
  check_count(reader, "the number of tensors", count, kMinTensorBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view name = read_text(reader, "a tensor's name");
    GgufTensor tensor{};
    tensor.rank = reader.scalar<uint32_t>("a tensor's rank");
    check_io(tensor.rank >= 1 && tensor.rank <= GgufTensor::kMaxRank, path(), ": tensor ", name,
             " has rank ", tensor.rank, ", must be in [1, ", GgufTensor::kMaxRank, "]");
    tensor.shape.fill(1);
    for (uint32_t axis = 0; axis < tensor.rank; ++axis)
      tensor.shape[axis] = reader.scalar<uint64_t>("a tensor's shape");
    tensor.type = reader.scalar<uint32_t>("a tensor's type");
    tensor.offset = reader.scalar<uint64_t>("a tensor's offset");
    check_io(tensor.offset % alignment_ == 0, path(), ": tensor ", name, " has the offset ",
             tensor.offset, ", must be a multiple of the alignment, ", alignment_);
    check_io(tensors_.try_emplace(name, tensor).second, path(), ": tensor ", name,
             " appears twice");
  }
  const uint64_t start = (reader.position() + alignment_ - 1) / alignment_ * alignment_;
  data_ = file_.bytes.subspan(std::min<uint64_t>(start, file_.bytes.size()));
}

std::span<const std::byte> GgufFile::tensor_bytes(std::string_view name, const GgufTensor& tensor,
                                                  uint64_t num_bytes) const {
  check_io(tensor.offset <= data_.size() && num_bytes <= data_.size() - tensor.offset, path(),
           ": tensor ", name, " has ", num_bytes, " bytes at offset ", tensor.offset,
           ", but the file's data has ", data_.size(), ": the file is truncated");
  return data_.subspan(tensor.offset, num_bytes);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

const GgufArray* GgufFile::find_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) fail_kind(key, "an array");
  return array;
}

void GgufFile::fail_kind(std::string_view key, const char* wanted) const {
  fail_io(path(), ": key ", key, " must be ", wanted);
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (!number) fail_kind(key, "one integer below 2^63");
  return number;
}

std::optional<double> GgufFile::real(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  const auto number = as_integer(*value);
  if (!number) fail_kind(key, "one number");
  return static_cast<double>(*number);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) fail_kind(key, "a bool");
  return *flag;
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* string = std::get_if<std::string_view>(value);
  if (string == nullptr) fail_kind(key, "a string");
  return *string;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  if (array->type != GgufType::kString) fail_kind(key, "an array of strings");
  ByteReader reader(array->bytes, path());
  std::vector<std::string_view> strings;
  strings.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) strings.push_back(read_text(reader, "a string"));
  return strings;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  if (array->type == GgufType::kString) fail_kind(key, "an array of integers");
  ByteReader reader(array->bytes, path());
  std::vector<int64_t> numbers;
  numbers.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const auto number = as_integer(read_value(reader, array->type, key, array->bytes));
    if (!number) fail_kind(key, "an array of integers below 2^63");
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<float>> GgufFile::reals(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  if (array->type != GgufType::kFloat32) fail_kind(key, "an array of float32");
  std::vector<float> numbers(array->count);
  if (!numbers.empty()) std::memcpy(numbers.data(), array->bytes.data(), array->bytes.size());
  return numbers;
}

int64_t GgufFile::required_integer(std::string_view key) const {
  const auto value = integer(key);
  check_io(value.has_value(), path(), ": key ", key, " is missing");
  return *value;
}

}  // namespace llm
