#include "jit/pack.hpp"

#include <zstd.h>

#include <algorithm>

#include "core/check.hpp"
#include "jit/pack_format.hpp"

namespace rapt::jit {
namespace {

constexpr uint64_t kMostImageBytes = uint64_t{256} << 20;

bool within(uint64_t offset, uint64_t bytes, std::string_view whole) {
  return bytes <= whole.size() && offset <= whole.size() - bytes;
}

}  // namespace

Pack::Pack(const std::filesystem::path& path) : file_(path) {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorCode::kIo, "pack ", path.string(), why..., ": make it again with `rapt pack`");
  };
  const std::string_view bytes = file_.bytes();
  ByteReader header(bytes);
  if (header.bytes(kPackMagic.size()) != kPackMagic) refuse(" is no pack of kernels");
  const uint32_t version = header.u32();
  if (version != kPackVersion)
    refuse(" has version ", version, ", this library reads ", kPackVersion);
  num_kernels_ = header.u32();
  const uint64_t index_bytes = header.u64(), data_bytes = header.u64();
  const Hash128 hash = header.hash();
  index_ = header.bytes(index_bytes);
  data_ = header.bytes(data_bytes);
  if (!header.ended()) refuse(" has ", bytes.size(), " bytes, not what its header says");
  if (hash != hash_of(concat(bytes.substr(0, kPackSealedBytes), index_)) ||
      index_.size() / kPackRecordBytes < num_kernels_)
    refuse(" has a damaged index");
  // With a true hash only a faulty writer gets here.
  for (uint32_t i = 0; i < num_kernels_; i++) {
    const PackRecord entry = record(i);
    if (!within(entry.packed_offset, entry.packed_bytes, data_) ||
        !within(entry.key_offset, entry.key_bytes, index_) ||
        !within(entry.manifest_offset, entry.manifest_bytes, index_))
      refuse(" has a damaged index");
  }
}

PackRecord Pack::record(uint32_t number) const {
  ByteReader bytes(index_.substr(number * kPackRecordBytes, kPackRecordBytes));
  return read_pack_record(bytes);
}

std::string_view Pack::index_bytes(uint64_t offset, uint64_t bytes) const {
  return index_.substr(offset, bytes);
}

Pack::Answer Pack::find(const TranslationUnit& unit, CompiledKernel& kernel) const {
  const Hash128 wanted = hash_of(unit.key);
  uint32_t begin = 0, end = num_kernels_;
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (record(middle).key_hash < wanted)
      begin = middle + 1;
    else
      end = middle;
  }
  if (begin == num_kernels_) return Answer::kAbsent;
  const PackRecord entry = record(begin);
  if (entry.key_hash != wanted || index_bytes(entry.key_offset, entry.key_bytes) != unit.key)
    return Answer::kAbsent;
  if (entry.unit_hash != unit.hash) return Answer::kStale;
  const std::string_view packed = data_.substr(entry.packed_offset, entry.packed_bytes);
  if (hash_of(packed) != entry.packed_hash || entry.image_bytes > kMostImageBytes)
    return Answer::kDamaged;
  CompiledKernel found;
  found.image.resize(entry.image_bytes);
  const size_t bytes =
      ZSTD_decompress(found.image.data(), found.image.size(), packed.data(), packed.size());
  ByteReader manifest(index_bytes(entry.manifest_offset, entry.manifest_bytes));
  found.resources = read_resources(manifest);
  manifest.u32();  // its dynamic shared memory: who launches it knows
  if (ZSTD_isError(bytes) || bytes != entry.image_bytes || !manifest.ended())
    return Answer::kDamaged;
  kernel = std::move(found);
  return Answer::kFound;
}

std::vector<PackedKernel> Pack::kernels() const {
  std::vector<PackedKernel> all;
  for (uint32_t i = 0; i < num_kernels_; i++) {
    const PackRecord entry = record(i);
    ByteReader manifest(index_bytes(entry.manifest_offset, entry.manifest_bytes));
    PackedKernel& kernel = all.emplace_back();
    kernel.key = index_bytes(entry.key_offset, entry.key_bytes);
    kernel.unit_hash = entry.unit_hash;
    kernel.image_bytes = entry.image_bytes;
    kernel.packed_bytes = entry.packed_bytes;
    kernel.resources = read_resources(manifest);
    kernel.dynamic_shared_bytes = static_cast<int32_t>(manifest.u32());
  }
  std::sort(all.begin(), all.end(),
            [](const PackedKernel& a, const PackedKernel& b) { return a.key < b.key; });
  return all;
}

}  // namespace rapt::jit
