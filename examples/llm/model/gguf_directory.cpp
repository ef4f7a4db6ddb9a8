#include "llm/model/gguf_directory.hpp"

#include <filesystem>

#include "llm/model/failure.hpp"

namespace llm {

std::optional<std::string> gguf_file_of(const std::string& path) {
  std::error_code unreadable;  // is said by whoever reads the files themselves
  if (!std::filesystem::is_directory(path, unreadable)) return std::nullopt;
  if (std::filesystem::exists(std::filesystem::path(path) / "config.json", unreadable))
    return std::nullopt;
  std::optional<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path, unreadable)) {
    if (entry.path().extension() != ".gguf") continue;
    check_supported(!found, path, ": holds several .gguf files: name the one to load");
    found = entry.path().string();
  }
  return found;
}

}  // namespace llm
