// The layout that Pack reads and PackWriter writes.
#pragma once

#include <cstdint>
#include <string_view>

#include "jit/bytes.hpp"

namespace rapt::jit {

inline constexpr std::string_view kPackMagic = "RAPTPACK";
inline constexpr uint32_t kPackVersion = 2;
// Magic, version, kernels, bytes of the index, bytes of the data; then the hash.
inline constexpr size_t kPackSealedBytes = 8 + 4 + 4 + 8 + 8;
inline constexpr size_t kPackHeaderBytes = kPackSealedBytes + 16;

// Offsets of key and manifest are from the index's begin, those of images from the data's.
struct PackRecord {
  Hash128 key_hash, unit_hash;
  Hash128 packed_hash;  // of the compressed image
  uint64_t packed_offset, packed_bytes, image_bytes;
  uint64_t key_offset, key_bytes, manifest_offset, manifest_bytes;
};
inline constexpr size_t kPackRecordBytes = 3 * 16 + 7 * 8;

inline void write(ByteWriter& to, const PackRecord& record) {
  to.hash(record.key_hash), to.hash(record.unit_hash), to.hash(record.packed_hash);
  for (uint64_t value :
       {record.packed_offset, record.packed_bytes, record.image_bytes, record.key_offset,
        record.key_bytes, record.manifest_offset, record.manifest_bytes})
    to.u64(value);
}

inline PackRecord read_pack_record(ByteReader& from) {
  PackRecord record;
  record.key_hash = from.hash(), record.unit_hash = from.hash(), record.packed_hash = from.hash();
  for (uint64_t* value :
       {&record.packed_offset, &record.packed_bytes, &record.image_bytes, &record.key_offset,
        &record.key_bytes, &record.manifest_offset, &record.manifest_bytes})
    *value = from.u64();
  return record;
}

}  // namespace rapt::jit
