// Programs that the emulator's compiler runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rapt::emulator {

// The file of a program: itself where it is a path, else the first of that name in PATH. Nothing
// where there is none that may be run.
std::optional<std::filesystem::path> find_program(const std::string& name);

struct Ended {
  bool ok = false;     // with exit code 0
  std::string output;  // what it wrote, errors and all; in English
};

// Runs a program in a folder, where it may leave a file "output", without a shell and without
// input.
Ended run_program(const std::vector<std::string>& command, const std::filesystem::path& folder);

// Removed with all that is in it.
class PrivateFolder {
 public:
  PrivateFolder();  // throws Error(kIo)
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace rapt::emulator
