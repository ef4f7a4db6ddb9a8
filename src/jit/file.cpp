#include "jit/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/check.hpp"

namespace rapt::jit {
namespace {

// Closed at the end of its life, whatever happens.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

[[noreturn]] void fail_step(const char* step, const std::filesystem::path& path) {
  const int error = errno;
  fail(ErrorCode::kIo, step, " ", path.string(), ": ", std::strerror(error));
}

// Does not wait for who writes to a FIFO.
int open_to_read(const std::filesystem::path& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// The size of a regular file; nothing for others.
std::optional<size_t> file_bytes(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return static_cast<size_t>(status.st_size);
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& path, size_t most_bytes) {
  const Descriptor file{open_to_read(path)};
  if (file.number < 0) return std::nullopt;
  const std::optional<size_t> size = file_bytes(file.number);
  if (!size || *size > most_bytes) return std::nullopt;
  std::string bytes(*size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) bytes.resize(done);  // cut by someone meanwhile
    done += static_cast<size_t>(count);
  }
  return bytes;
}

void write_file(const std::filesystem::path& path, std::string_view bytes, Readers readers) {
  std::string temporary = concat(path.string(), ".XXXXXX", kTemporarySuffix);
  const Descriptor file{
      mkostemps(temporary.data(), static_cast<int>(kTemporarySuffix.size()), O_CLOEXEC)};
  if (file.number < 0) fail_step("creating", temporary);
  const char* step = nullptr;
  if (readers == Readers::kAll && fchmod(file.number, 0644) != 0)
    step = "allowing others to read";
  else if (!write_all(file.number, bytes))
    step = "writing";
  else if (fsync(file.number) != 0)
    step = "flushing";
  else if (rename(temporary.c_str(), path.c_str()) != 0)
    step = "renaming";
  if (step) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    fail_step(step, temporary);
  }
  // The new name is on the disk when its folder is; if that fails it may be lost in a power cut,
  // with the file whole or gone.
  const Descriptor folder{open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.number >= 0) fsync(folder.number);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file{open_to_read(path)};
  if (file.number < 0) fail_step("opening", path);
  const std::optional<size_t> size = file_bytes(file.number);
  if (!size) fail(ErrorCode::kIo, path.string(), " is no file");
  if (*size == 0) return;  // which cannot be mapped
  void* const address = mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) fail_step("mapping", path);
  data_ = static_cast<const char*>(address);
  size_ = *size;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), size_);
}

}  // namespace rapt::jit
