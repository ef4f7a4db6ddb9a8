// What the tests of jit/ share: a folder of their own, kernels to ask for, and a compiler whose
// builds can be counted across processes.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "jit/kernel_store.hpp"
#include "support/error_of.hpp"

namespace rapt::jit {

using test::error_of;

// Removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rapt_jit.XXXXXX").string();
    if (!mkdtemp(name.data())) fail(ErrorCode::kIo, "no scratch folder ", name);
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0755));  // tests may be nobody
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void put(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::remove(path);  // to overwrite one may wait for the disk
  std::ofstream(path, std::ios::binary) << bytes;
}

inline KernelKey key_of(int64_t head_dim) {
  return KernelKey("attend", {90, 'a'}).number("head_dim", head_dim);
}

inline constexpr HeaderText kHeaders[] = {{"attend.cuh", "#define GLOBAL __global__\n"}};

inline KernelSource source_of(const std::string& entry = "extern \"C\" GLOBAL void attend() {}") {
  return {"attend.cuh", "attend", entry, {}, kHeaders};
}

// Writes "begin PROCESS KEY" and "end PROCESS KEY" to a file, with a pause between. Its images
// follow from the unit alone.
class CountingCompiler : public Compiler {
 public:
  CountingCompiler(std::filesystem::path log, std::chrono::milliseconds pause = {},
                   std::string identity = "counting 1")
      : log_(std::move(log)), pause_(pause), identity_(std::move(identity)) {}

  const std::string& identity() const override { return identity_; }

  CompiledKernel compile(const TranslationUnit& unit) const override {
    append(concat("begin ", getpid(), " ", unit.key, "\n"));
    std::this_thread::sleep_for(pause_);
    append(concat("end ", getpid(), " ", unit.key, "\n"));
    return result_of(unit);
  }

  static CompiledKernel result_of(const TranslationUnit& unit) {
    CompiledKernel kernel;
    while (kernel.image.size() < 700) kernel.image += unit.hash.hex() + std::string(3, '\0');
    kernel.resources.num_registers = 40 + static_cast<int32_t>(unit.hash.low % 100);
    kernel.resources.stack_bytes = 16;
    kernel.resources.static_shared_bytes = 1024;
    kernel.resources.messages = {"(C7519) a remark"};
    return kernel;
  }

 private:
  void append(const std::string& line) const {
    const int file = open(log_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::write(file, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(file);
  }

  std::filesystem::path log_;
  std::chrono::milliseconds pause_;
  std::string identity_;
};

inline StoreOptions counting_options(const std::filesystem::path& cache,
                                     const std::filesystem::path& log,
                                     std::chrono::milliseconds pause = {}) {
  StoreOptions options;
  options.cache_folder = cache;
  options.make_compiler = [log, pause] { return std::make_unique<CountingCompiler>(log, pause); };
  return options;
}

// How many lines of a compiler's log begin so.
inline int64_t count_lines(const std::filesystem::path& log, const std::string& begin) {
  std::istringstream lines(contents(log));
  int64_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.rfind(begin, 0) == 0;
  return count;
}

inline void expect_right(const CompiledKernel& kernel, const KernelKey& key,
                         const KernelSource& source = source_of()) {
  const CompiledKernel right = CountingCompiler::result_of(translation_unit(key, source));
  EXPECT_EQ(kernel.image, right.image);
  EXPECT_EQ(kernel.resources, right.resources);
}

}  // namespace rapt::jit
