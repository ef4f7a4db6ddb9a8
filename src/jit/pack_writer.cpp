#include <zstd.h>

#include <utility>

#include "core/check.hpp"
#include "jit/pack.hpp"
#include "jit/pack_format.hpp"

namespace rapt::jit {
namespace {

// Packs are written once and read by everyone; the highest level of ordinary memory use.
constexpr int kLevel = 19;

std::string compressed(const std::string& image) {
  std::string packed(ZSTD_compressBound(image.size()), '\0');
  const size_t bytes =
      ZSTD_compress(packed.data(), packed.size(), image.data(), image.size(), kLevel);
  if (ZSTD_isError(bytes))
    fail(ErrorCode::kInternal, "zstd, compressing ", image.size(),
         " bytes: ", ZSTD_getErrorName(bytes));
  packed.resize(bytes);
  return packed;
}

}  // namespace

void PackWriter::add(const TranslationUnit& unit, const CompiledKernel& kernel,
                     int32_t dynamic_shared_bytes) {
  ByteWriter manifest;
  jit::write(manifest, kernel.resources);
  manifest.u32(static_cast<uint32_t>(dynamic_shared_bytes));
  const auto [place, is_new] = entries_.insert(
      {hash_of(unit.key), {unit.key, unit.hash, {}, kernel.image.size(), manifest.written()}});
  check(is_new, "kernel ", unit.key, " is in the pack already");
  place->second.packed = compressed(kernel.image);
}

void PackWriter::write(const std::filesystem::path& path) const {
  ByteWriter records, texts, data;
  const uint64_t texts_offset = entries_.size() * kPackRecordBytes;
  for (const auto& [key_hash, entry] : entries_) {
    PackRecord record = {};
    record.key_hash = key_hash;
    record.unit_hash = entry.unit_hash;
    record.packed_hash = hash_of(entry.packed);
    record.packed_offset = data.written().size();
    record.packed_bytes = entry.packed.size();
    record.image_bytes = entry.image_bytes;
    record.key_offset = texts_offset + texts.written().size();
    record.key_bytes = entry.key.size();
    texts.bytes(entry.key);
    record.manifest_offset = texts_offset + texts.written().size();
    record.manifest_bytes = entry.manifest.size();
    texts.bytes(entry.manifest);
    jit::write(records, record);
    data.bytes(entry.packed);
  }
  const std::string index = records.written() + texts.written();
  ByteWriter file;
  file.bytes(kPackMagic);
  file.u32(kPackVersion);
  file.u32(static_cast<uint32_t>(entries_.size()));
  file.u64(index.size());
  file.u64(data.written().size());
  file.hash(hash_of(concat(file.written(), index)));
  file.bytes(index);
  file.bytes(data.written());
  write_file(path, file.written(), Readers::kAll);
}

}  // namespace rapt::jit
