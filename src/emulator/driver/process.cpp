#include "emulator/driver/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/check.hpp"
#include "jit/file.hpp"

namespace rapt::emulator {
namespace {

constexpr const char* kOutput = "output";
constexpr size_t kMostOutput = size_t{16} << 20;

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

// The process's environment, but that messages are in English.
std::vector<std::string> english_environment() {
  std::vector<std::string> all;
  for (char** one = environ; *one; one++)
    if (std::string_view(*one).substr(0, 7) != "LC_ALL=") all.emplace_back(*one);
  all.emplace_back("LC_ALL=C");
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  all.reserve(strings.size() + 1);
  for (std::string& one : strings) all.push_back(one.data());
  all.push_back(nullptr);
  return all;
}

// Where the child begins.
struct FileActions {
  posix_spawn_file_actions_t actions;
  explicit FileActions(const std::filesystem::path& folder) {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, kOutput, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
};

}  // namespace

std::optional<std::filesystem::path> find_program(const std::string& name) {
  if (name.find('/') != name.npos)
    return is_program(name) ? std::optional(std::filesystem::absolute(name)) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::filesystem::path place = std::filesystem::path(rest.substr(0, end)) / name;
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (place.is_absolute() && is_program(place)) return place;
  }
  return std::nullopt;
}

Ended run_program(const std::vector<std::string>& command, const std::filesystem::path& folder) {
  std::vector<std::string> arguments = command, environment = english_environment();
  const FileActions begin(folder);
  pid_t child = 0;
  const int error = posix_spawn(&child, command.front().c_str(), &begin.actions, nullptr,
                                pointers(arguments).data(), pointers(environment).data());
  if (error) return {false, concat("running ", command.front(), ": ", std::strerror(error))};
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return {false, concat("waiting for ", command.front(), ": ", std::strerror(errno))};
  Ended ended{WIFEXITED(status) && WEXITSTATUS(status) == 0,
              jit::read_file(folder / kOutput, kMostOutput).value_or("")};
  if (!ended.ok)
    ended.output +=
        WIFSIGNALED(status)
            ? concat(command.front(), " was ended by signal ", WTERMSIG(status), "\n")
            : concat(command.front(), " ended with exit code ", WEXITSTATUS(status), "\n");
  return ended;
}

PrivateFolder::PrivateFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "rapt_emulator.XXXXXX").string();
  if (!mkdtemp(name.data()))
    fail(ErrorCode::kIo, "making a folder ", name, ": ", std::strerror(errno));
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace rapt::emulator
