// Small files for the loaders to read, also wrong ones.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "llm/model/mapped_file.hpp"
#include "rapt/error.hpp"

namespace llm::test {

template <typename T>
void append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline FileView view(const std::string& bytes, const std::string& name) {
  return {{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, name};
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rapt_llm_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::filesystem::path path_;
};

// `call` throws rapt::Error with `code` and all of `fragments` in its message.
template <typename Call>
void expect_error(rapt::ErrorCode code, const std::vector<std::string>& fragments,
                  const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one about: " << fragments.front();
  } catch (const rapt::Error& error) {
    EXPECT_EQ(to_string(error.code()), std::string(to_string(code))) << error.what();
    for (const std::string& fragment : fragments)
      EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos)
          << "\"" << fragment << "\" is not in: " << error.what();
  }
}

// Writes GGUF v3, key by key and tensor by tensor. Nothing is checked, so it can lie.
class GgufWriter {
 public:
  enum Type : uint32_t {
    kUint8 = 0,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kInt64 = 11
  };

  uint32_t version = 3;
  uint64_t alignment = 32;
  int64_t extra_keys = 0, extra_tensors = 0;  // added to the counts in the header

  GgufWriter& integer(std::string_view key, uint32_t value) {
    return raw(key, kUint32, [&] { append(metadata_, value); });
  }
  GgufWriter& signed_long(std::string_view key, int64_t value) {
    return raw(key, kInt64, [&] { append(metadata_, value); });
  }
  GgufWriter& real(std::string_view key, float value) {
    return raw(key, kFloat32, [&] { append(metadata_, value); });
  }
  GgufWriter& boolean(std::string_view key, bool value) {
    return raw(key, kBool, [&] { append(metadata_, static_cast<uint8_t>(value)); });
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    return raw(key, kString, [&] { append_text(metadata_, value); });
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    return raw(key, kArray, [&] {
      append(metadata_, uint32_t{kString});
      append(metadata_, uint64_t{values.size()});
      for (const std::string& value : values) append_text(metadata_, value);
    });
  }
  GgufWriter& reals(std::string_view key, const std::vector<float>& values) {
    return array(key, kFloat32, values);
  }
  GgufWriter& integers(std::string_view key, const std::vector<int32_t>& values) {
    return array(key, kInt32, values);
  }
  // A key whose type and bytes are the caller's.
  GgufWriter& custom(std::string_view key, uint32_t type, std::string_view bytes) {
    return raw(key, type, [&] { metadata_ += bytes; });
  }
  // `shape` fastest axis first, as in the file.
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                     std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, shape, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufWriter& tensor_at(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                        uint64_t offset) {
    append_text(tensors_, name);
    append(tensors_, static_cast<uint32_t>(shape.size()));
    for (const uint64_t extent : shape) append(tensors_, extent);
    append(tensors_, type);
    append(tensors_, offset);
    ++num_tensors_;
    return *this;
  }

  std::string finish() const {
    std::string file = "GGUF";
    append(file, version);
    append(file, static_cast<uint64_t>(num_tensors_ + extra_tensors));
    append(file, static_cast<uint64_t>(num_keys_ + extra_keys));
    file += metadata_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  static void append_text(std::string& bytes, std::string_view text) {
    append(bytes, uint64_t{text.size()});
    bytes += text;
  }

 private:
  template <typename AppendValue>
  GgufWriter& raw(std::string_view key, uint32_t type, const AppendValue& append_value) {
    append_text(metadata_, key);
    append(metadata_, type);
    append_value();
    ++num_keys_;
    return *this;
  }
  template <typename T>
  GgufWriter& array(std::string_view key, uint32_t type, const std::vector<T>& values) {
    return raw(key, kArray, [&] {
      append(metadata_, type);
      append(metadata_, uint64_t{values.size()});
      metadata_ += bytes_of(values);
    });
  }

  std::string metadata_, tensors_, data_;
  int64_t num_keys_ = 0, num_tensors_ = 0;
};

}  // namespace llm::test
