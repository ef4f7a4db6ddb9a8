#include "llm/model/safetensors.hpp"

#include "llm/model/byte_reader.hpp"
#include "llm/model/json_file.hpp"

namespace llm {
namespace {

using nlohmann::json;

// Members of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}.
SafetensorsEntry read_entry(const std::string& name, const json& member,
                            std::span<const std::byte> data, const std::string& file) {
  check_io(member.is_object(), file, ": tensor ", name, " must be an object");
  SafetensorsEntry entry;
  const auto dtype = json_text(member, "dtype", file);
  const json& shape = json_member(member, "shape");
  const json& offsets = json_member(member, "data_offsets");
  const bool complete = dtype && shape.is_array() && offsets.is_array() && offsets.size() == 2 &&
                        offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  check_io(complete, file, ": tensor ", name,
           " needs a dtype, a shape and data_offsets of two numbers");
  entry.dtype = *dtype;
  for (const json& extent : shape) {
    check_io(extent.is_number_unsigned() && extent.get<uint64_t>() <= INT64_MAX, file, ": tensor ",
             name, " has the shape ", shape.dump(), ", which holds no list of lengths");
    entry.shape.push_back(extent.get<int64_t>());
  }
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  check_io(begin <= end && end <= data.size(), file, ": tensor ", name, " has data_offsets [",
           begin, ", ", end, "], must be in order and within the ", data.size(),
           " bytes of data: the file is truncated or not what it says");
  entry.bytes = data.subspan(begin, end - begin);
  return entry;
}

}  // namespace

bool SafetensorsFile::recognises(std::span<const std::byte> bytes) {
  uint64_t header_bytes;
  if (bytes.size() <= sizeof(header_bytes)) return false;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  return header_bytes <= bytes.size() - sizeof(header_bytes) &&
         bytes[sizeof(header_bytes)] == std::byte{'{'};
}

SafetensorsFile::SafetensorsFile(FileView file) : file_(file) {
  constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own bound
  ByteReader reader(file.bytes, file.path);
  const auto header_bytes = reader.scalar<uint64_t>("the header's length");
  check_io(header_bytes <= kMaxHeaderBytes, file.path, ": the header's length is ", header_bytes,
           ", must be at most ", kMaxHeaderBytes);
  const json header = parse_json(reader.text(header_bytes, "the header"), file.path);
  check_io(header.is_object(), file.path, ": the header must be an object");
  const auto data = reader.take(reader.left(), "the data");
  for (const auto& [name, member] : header.items()) {
    if (name != "__metadata__") entries_.emplace(name, read_entry(name, member, data, file.path));
  }
}

}  // namespace llm
