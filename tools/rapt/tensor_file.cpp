#include "tensor_file.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "llm/model/json_file.hpp"

namespace rapt_tool {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw rapt::Error(rapt::ErrorCode::kIo, path + ": " + what);
}

// The file's stated number of elements, if that many can be in `available` bytes.
int64_t checked_elements(const std::string& path, const std::vector<int64_t>& shape,
                         size_t element_bytes, uint64_t available) {
  uint64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 0) refuse(path, "a size is negative");
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements))
      refuse(path, "the shape overflows");
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, element_bytes, &bytes) || bytes != available)
    refuse(path, "the shape takes " + std::to_string(elements) + " elements of " +
                     std::to_string(element_bytes) + " bytes, but the data is " +
                     std::to_string(available) + " bytes long");
  return static_cast<int64_t>(elements);
}

void read(std::ifstream& file, const std::string& path, void* to, uint64_t bytes) {
  if (!file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
    refuse(path, "ends early");
}

// NumPy's name of a type; bfloat16 travels as its bits.
const char* npy_descr(rapt::DType dtype) {
  switch (dtype) {
    case rapt::DType::kFloat32:
      return "<f4";
    case rapt::DType::kFloat16:
      return "<f2";
    case rapt::DType::kBFloat16:
      return "<u2";
    case rapt::DType::kUInt8:
      return "|u1";
    case rapt::DType::kInt32:
      return "<i4";
    case rapt::DType::kInt64:
      return "<i8";
    default:
      return "";
  }
}

// The value of a key in the header's Python dictionary literal, up to the comma or bracket that
// ends it.
std::string header_value(const std::string& path, const std::string& header, const char* key) {
  const size_t at = header.find(std::string("'") + key + "':");
  if (at == std::string::npos) refuse(path, std::string("the header has no ") + key);
  size_t begin = header.find_first_not_of(' ', at + std::strlen(key) + 3);
  if (begin == std::string::npos) refuse(path, "the header ends early");
  const char close = header[begin] == '(' ? ')' : header[begin] == '\'' ? '\'' : ',';
  const size_t end = header.find(close, begin + 1);
  if (end == std::string::npos) refuse(path, "the header ends early");
  if (close == ',') return header.substr(begin, end - begin);
  return header.substr(begin + 1, end - begin - 1);
}

// Its length decides what may be allocated, so a pipe or a device won't do.
std::ifstream open_file(const std::string& path, uint64_t& file_bytes) {
  std::error_code error;
  // First, for opening a FIFO waits for who writes to it.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    refuse(path, "is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "cannot be read");
  file_bytes = std::filesystem::file_size(path);
  return file;
}

HostTensor load_npy(const std::string& path, rapt::DType expected) {
  uint64_t file_bytes = 0;
  std::ifstream file = open_file(path, file_bytes);
  unsigned char magic[8];
  read(file, path, magic, sizeof(magic));
  if (std::memcmp(magic, "\x93NUMPY", 6) != 0) refuse(path, "is no .npy file");
  uint32_t header_bytes = 0;
  read(file, path, &header_bytes, magic[6] == 1 ? 2 : 4);
  if (header_bytes > file_bytes) refuse(path, "the header is longer than the file");
  std::string header(header_bytes, ' ');
  read(file, path, header.data(), header_bytes);

  const std::string descr = header_value(path, header, "descr");
  const bool bits = expected == rapt::DType::kBFloat16 && (descr == "|V2" || descr == "<V2");
  if (descr != npy_descr(expected) && !bits)
    refuse(path, "holds " + descr + ": must be " + npy_descr(expected) + " (" +
                     rapt::to_string(expected) + ")");
  if (header_value(path, header, "fortran_order") != "False")
    refuse(path, "is in Fortran order: store it in C order");
  std::vector<int64_t> shape;
  const std::string sizes = header_value(path, header, "shape");
  if (sizes.find('-') != std::string::npos) refuse(path, "a size is negative");
  for (size_t at = 0; (at = sizes.find_first_of("0123456789", at)) != std::string::npos;) {
    size_t length = 0;
    try {
      shape.push_back(std::stoll(sizes.substr(at), &length));
    } catch (const std::out_of_range&) {
      refuse(path, "the shape overflows");
    }
    at += length;
  }
  const uint64_t start = static_cast<uint64_t>(file.tellg());
  checked_elements(path, shape, rapt::size_of(expected), file_bytes - start);
  HostTensor tensor(expected, shape);
  read(file, path, tensor.data(), tensor.bytes());
  return tensor;
}

const char* safetensors_name(rapt::DType dtype) {
  switch (dtype) {
    case rapt::DType::kFloat32:
      return "F32";
    case rapt::DType::kFloat16:
      return "F16";
    case rapt::DType::kBFloat16:
      return "BF16";
    case rapt::DType::kUInt8:
      return "U8";
    case rapt::DType::kInt32:
      return "I32";
    case rapt::DType::kInt64:
      return "I64";
    default:
      return "";
  }
}

// A list of numbers that are whole, not negative and fit.
std::vector<int64_t> integers(const std::string& path, const json& list) {
  std::vector<int64_t> values;
  for (const json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX)
      refuse(path,
             "a size or offset is " + item.dump() + ": must be a whole number up to 2^63 - 1");
    values.push_back(item.get<int64_t>());
  }
  return values;
}

HostTensor load_safetensors(const std::string& path, const std::string& name,
                            rapt::DType expected) {
  uint64_t file_bytes = 0, header_bytes = 0;
  std::ifstream file = open_file(path, file_bytes);
  read(file, path, &header_bytes, sizeof(header_bytes));
  if (header_bytes > file_bytes - sizeof(header_bytes))
    refuse(path, "the header is longer than the file");
  std::string text(header_bytes, ' ');
  read(file, path, text.data(), header_bytes);
  const uint64_t data_bytes = file_bytes - sizeof(header_bytes) - header_bytes;
  try {
    const json header = llm::parse_json(text, path);
    if (!header.contains(name)) refuse(path, "has no tensor \"" + name + "\"");
    const json& entry = header.at(name);
    if (entry.at("dtype") != safetensors_name(expected))
      refuse(path, "tensor \"" + name + "\" is " + entry.at("dtype").dump() + ": must be " +
                       safetensors_name(expected));
    const auto shape = integers(path, entry.at("shape"));
    const auto offsets = integers(path, entry.at("data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1] ||
        static_cast<uint64_t>(offsets[1]) > data_bytes)
      refuse(path, "tensor \"" + name + "\" lies outside the file");
    checked_elements(path, shape, rapt::size_of(expected), offsets[1] - offsets[0]);
    HostTensor tensor(expected, shape);
    file.seekg(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes) + offsets[0]);
    read(file, path, tensor.data(), tensor.bytes());
    return tensor;
  } catch (const json::exception& error) {
    refuse(path, std::string("the header is malformed: ") + error.what());
  }
}

}  // namespace

void HostTensor::Free::operator()(std::byte* pointer) const {
  std::free(pointer);
}

HostTensor::HostTensor(rapt::DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)) {
  const size_t padded = (bytes() / 64 + 1) * 64;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, padded)));
  if (!data_)
    throw rapt::Error(rapt::ErrorCode::kOutOfMemory,
                      "no memory for a tensor of " + std::to_string(bytes()) +
                          " bytes: make the step's lengths, heads or page_size smaller");
}

int64_t HostTensor::num_elements() const {
  int64_t elements = 1;
  for (int64_t size : shape_) elements *= size;
  return elements;
}

rapt::TensorView HostTensor::view() const {
  rapt::TensorView view;
  view.data = data_.get();
  view.dtype = dtype_;
  view.rank = static_cast<int32_t>(shape_.size());
  int64_t stride = 1;
  for (int32_t axis = view.rank - 1; axis >= 0; axis--) {
    view.shape[axis] = shape_[axis];
    view.stride[axis] = stride;
    stride *= std::max<int64_t>(shape_[axis], 1);
  }
  return view;
}

HostTensor load_tensor(const std::string& path, rapt::DType expected) {
  const size_t colon = path.rfind(".safetensors:");
  HostTensor tensor =
      colon == std::string::npos
          ? load_npy(path, expected)
          : load_safetensors(path.substr(0, colon + 12), path.substr(colon + 13), expected);
  if (tensor.shape().size() > static_cast<size_t>(rapt::TensorView::kMaxRank))
    refuse(path, "has " + std::to_string(tensor.shape().size()) + " axes: at most 6");
  return tensor;
}

void save_npy(const std::string& path, const HostTensor& tensor) {
  std::string header = std::string("{'descr': '") + npy_descr(tensor.dtype()) +
                       "', 'fortran_order': False, 'shape': (";
  for (int64_t size : tensor.shape()) header += std::to_string(size) + ", ";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10, ' ');  // data starts 64-byte aligned
  header.back() = '\n';
  const uint16_t header_bytes = static_cast<uint16_t>(header.size());
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8).write(reinterpret_cast<const char*>(&header_bytes), 2);
  file.write(header.data(), header_bytes);
  file.write(reinterpret_cast<const char*>(tensor.data()),
             static_cast<std::streamsize>(tensor.bytes()));
  if (!file.flush()) refuse(path, "cannot be written");
}

}  // namespace rapt_tool
