#include "jit/disk_cache.hpp"

#include <cstdlib>
#include <utility>

#include "core/check.hpp"
#include "jit/file.hpp"

namespace rapt::jit {
namespace {

// A file is: magic, version, bytes of the payload, hash of these three and the payload, payload.
// The payload is: id's text, resources, image. A change of any of this is a new version.
constexpr std::string_view kMagic = "RAPTKRNL";
constexpr uint32_t kVersion = 1;
constexpr size_t kMostBytes = size_t{256} << 20;  // more is no kernel of ours

Hash128 sealed(std::string_view head, std::string_view payload) {
  return hash_of(concat(head, payload));
}

std::string encode(const CacheId& id, const CompiledKernel& kernel) {
  ByteWriter payload, file;
  payload.text(id.text);
  write(payload, kernel.resources);
  payload.text(kernel.image);
  file.bytes(kMagic);
  file.u32(kVersion);
  file.u64(payload.written().size());
  file.hash(sealed(file.written(), payload.written()));
  file.bytes(payload.written());
  return file.written();
}

bool decode(std::string_view bytes, const CacheId& id, CompiledKernel& kernel) {
  constexpr size_t kHeadBytes = kMagic.size() + sizeof(uint32_t) + sizeof(uint64_t);
  ByteReader file(bytes);
  if (file.bytes(kMagic.size()) != kMagic || file.u32() != kVersion) return false;
  const uint64_t payload_bytes = file.u64();
  const Hash128 hash = file.hash();
  const std::string_view payload = file.bytes(payload_bytes);
  if (!file.ended() || hash != sealed(bytes.substr(0, kHeadBytes), payload)) return false;
  ByteReader parts(payload);
  if (parts.text() != id.text) return false;
  kernel.resources = read_resources(parts);
  kernel.image = parts.text();
  return parts.ended();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::filesystem::path default_cache_folder() {
  if (const std::string own = variable("RAPT_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty())
    return std::filesystem::path(xdg) / "rapt";
  if (const std::string home = variable("HOME"); !home.empty())
    return std::filesystem::path(home) / ".cache" / "rapt";
  return {};
}

CacheId cache_id(const TranslationUnit& unit, const std::string& compiler_identity) {
  CacheId id;
  id.text = concat(unit.key, "\n", compiler_identity, "\n", unit.hash.hex());
  id.hash = hash_of(id.text);
  return id;
}

DiskCache::DiskCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

std::filesystem::path DiskCache::path_of(const CacheId& id) const {
  return folder_ / (id.hash.hex() + ".kernel");
}

DiskCache::Answer DiskCache::find(const CacheId& id, CompiledKernel& kernel) const {
  std::error_code ignored;
  const std::filesystem::path path = path_of(id);
  if (!std::filesystem::exists(path, ignored)) return Answer::kAbsent;
  const std::optional<std::string> bytes = read_file(path, kMostBytes);
  CompiledKernel found;
  if (!bytes || !decode(*bytes, id, found)) return Answer::kDamaged;
  kernel = std::move(found);
  return Answer::kFound;
}

std::optional<std::string> DiskCache::store(const CacheId& id, const CompiledKernel& kernel) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return concat("creating ", folder_.string(), ": ", error.message());
  remove_old_temporaries();
  try {
    write_file(path_of(id), encode(id, kernel));
  } catch (const Error& failure) {
    return failure.what();
  }
  return std::nullopt;
}

// Killed processes leave theirs. Who writes one now is done within the hour.
void DiskCache::remove_old_temporaries() const {
  std::error_code error;
  const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::directory_iterator file(folder_, error), end;
  for (; !error && file != end; file.increment(error)) {
    std::error_code ignored;  // others may remove it first
    if (file->path().extension() == kTemporarySuffix && file->last_write_time(ignored) < hour_ago &&
        !ignored)
      std::filesystem::remove(file->path(), ignored);
  }
}

BuildLock DiskCache::lock(const CacheId& id, std::chrono::milliseconds longest) const {
  std::error_code ignored;  // without a folder there is no lock
  std::filesystem::create_directories(folder_, ignored);
  return {folder_ / "lock", id.hash, longest};
}

}  // namespace rapt::jit
