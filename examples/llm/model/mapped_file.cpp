#include "llm/model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "llm/model/failure.hpp"

namespace llm {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Without O_NONBLOCK a FIFO would be waited for.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  check_io(file.fd >= 0, path, ": cannot be opened: ", std::strerror(errno));
  struct stat info;
  check_io(::fstat(file.fd, &info) == 0, path, ": ", std::strerror(errno));
  check_io(S_ISREG(info.st_mode), path, ": is not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return;
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  check_io(start != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace llm
