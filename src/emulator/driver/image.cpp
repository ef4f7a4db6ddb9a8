#include "emulator/driver/image.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "emulator/driver/compiler.hpp"
#include "emulator/driver/result.hpp"

namespace rapt::emulator {
namespace {

constexpr std::string_view kMagic = "RAPTEMUL";

struct Header {
  char magic[kMagic.size()];
  // Calls between library and emulator are those of the headers that the library was made with.
  uint64_t interface_version;
  uint64_t library_bytes;
  int32_t architecture;
  char suffix;
  char padding[3];
};
static_assert(sizeof(Header) == 32);

void write_all(int file, const char* bytes, size_t count) {
  while (count) {
    const ssize_t written = write(file, bytes, count);
    require(written > 0 || errno == EINTR, cuda::kOutOfMemory,
            "writing an image to memory: ", std::strerror(errno));
    if (written < 0) continue;
    bytes += written;
    count -= static_cast<size_t>(written);
  }
}

std::vector<std::span<const char>> segments_of(void* library) {
  struct Search {
    uintptr_t base;
    std::vector<std::span<const char>> found;
  } search{};
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  search.base = map->l_addr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        auto& wanted = *static_cast<Search*>(to);
        if (info->dlpi_addr != wanted.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type == PT_LOAD)
            wanted.found.emplace_back(reinterpret_cast<const char*>(wanted.base + header.p_vaddr),
                                      header.p_memsz);
        }
        return 1;
      },
      &search);
  return search.found;
}

}  // namespace

std::string make_image(const jit::Architecture& architecture, std::string_view library) {
  Header header = {};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.interface_version = interface_version();
  header.library_bytes = library.size();
  header.architecture = architecture.number;
  header.suffix = architecture.suffix;
  std::string image(sizeof header, '\0');
  std::memcpy(image.data(), &header, sizeof header);
  return image.append(library);
}

Image::Image(const void* image, int32_t compute_capability) {
  require(image, cuda::kInvalidValue, "the image is null");
  // What is too short for a header may end anywhere behind its mark.
  require(std::memcmp(image, kMagic.data(), kMagic.size()) == 0, kInvalidImage,
          "not an image of the emulator's compiler");
  Header header;
  std::memcpy(&header, image, sizeof header);
  require(header.interface_version == interface_version(), kInvalidImage,
          "the image was made by another version of the emulator");
  const jit::Architecture architecture{header.architecture, header.suffix};
  architecture_ = header.architecture;
  require(architecture.runs_on(compute_capability), kNoBinaryForGpu, "the image is for ",
          architecture.name(), ", the device is an sm_", compute_capability);
  file_ = memfd_create("rapt_kernel", MFD_CLOEXEC);
  require(file_ >= 0, cuda::kOutOfMemory, "memfd_create: ", std::strerror(errno));
  try {
    write_all(file_, static_cast<const char*>(image) + sizeof header, header.library_bytes);
    library_ = dlopen(concat("/proc/self/fd/", file_).c_str(), RTLD_NOW | RTLD_LOCAL);
    require(library_, kInvalidImage, library_ ? "" : dlerror());
    segments_ = segments_of(library_);
  } catch (...) {
    close(file_);
    throw;
  }
}

Image::~Image() {
  dlclose(library_);
  close(file_);
}

const Entry* Image::find(const std::string& kernel) const {
  return static_cast<const Entry*>(dlsym(library_, ("rapt_emulated_" + kernel).c_str()));
}

}  // namespace rapt::emulator
