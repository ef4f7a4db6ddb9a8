// The corpus of shapes (shapes/*.txt) as a list of cases.
//
// A line is `phase name key=value ...`; # begins a comment. A value may be a list a,b,c: the line
// then stands for every combination. `quick` as a word of its own marks what a quick run measures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/kv_cache.hpp"

namespace rapt::bench {

enum class Phase : uint8_t { kPrefill, kDecode, kPlan };
const char* to_string(Phase phase);

struct Shape {
  Phase phase{};
  std::string name;  // of the model or trace
  bool quick = false;

  DType dtype = DType::kBFloat16;           // dtype=
  int32_t query_heads = 32, kv_heads = 8;   // heads=32/8
  int32_t head_dim = 128;                   // dim=
  int32_t page_size = 16;                   // page=; 0 = ragged keys, no cache
  KvShape cache_shape = KvShape::kPagesKv;  // cache=pages_kv, kv_pages, packed
  KvLayout layout = KvLayout::kNHD;         // layout=nhd, hnd
  int32_t requests = 1;                     // requests=
  int32_t queries = 1;                      // queries= of each request; plan: of a chunk
  int32_t keys = 0;                         // keys= of each request; plan: at most
  bool causal = true;                       // causal=yes, no
  bool cold = true;    // state=cold: out of memory, warm: the same caches again and again
  bool mixed = false;  // plan: batch=mixed, one request in eight is a chunk of a prefill

  // "llama-3-8b bfloat16 32/8 heads D 128, 512 x 2048 causal, page 16 pages_kv NHD".
  std::string describe() const;
};

AttentionSpec spec_of(const Shape& shape);

// Throws Error(kInvalidArgument) that names `file`, the line and the word.
std::vector<Shape> parse_shapes(std::string_view text, const std::string& file);
// shapes/cpu.txt and shapes/launch.txt as they were when this was built.
std::vector<Shape> default_cpu_shapes();
std::vector<Shape> default_launch_shapes();

}  // namespace rapt::bench
