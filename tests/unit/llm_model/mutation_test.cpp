// Files damaged at random load or are refused: never a crash, a hang or a leak (with sanitizers).
#include <gtest/gtest.h>

#include <random>

#include "llm/model/loaders.hpp"
#include "support/source_dir.hpp"
#include "unit/llm_model/tiny_llama.hpp"

namespace llm {
namespace {

// Flips, overwrites or cuts. Most changes fall into the first `header_bytes`, where structure is.
std::string damage(std::string file, size_t header_bytes, std::mt19937_64& random) {
  const auto below = [&](uint64_t bound) { return random() % bound; };
  const uint64_t kind = below(8);
  if (kind == 0) return file.substr(0, below(file.size()));
  const uint64_t count = 1 + below(4);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t place = below(below(8) == 0 ? file.size() : header_bytes);
    if (kind < 4) {
      file[place] ^= static_cast<char>(1u << below(8));
    } else if (kind < 6) {
      file[place] = static_cast<char>(below(2) ? 0xff : below(256));
    } else {  // a plausible integer of 8 bytes
      const uint64_t choices[] = {
          0, 1, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32, file.size(), below(1000)};
      const uint64_t value = choices[below(std::size(choices))];
      const size_t room = std::min<size_t>(8, file.size() - place);
      std::memcpy(file.data() + place, &value, room);
    }
  }
  return file;
}

template <typename Load>
void expect_error_or_success(const std::string& file, size_t header_bytes, int rounds,
                             const Load& load) {
  std::mt19937_64 random(20261129);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string damaged = damage(file, header_bytes, random);
    try {
      load(damaged);
    } catch (const rapt::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 10);  // the damage is felt
}

TEST(Mutation, gguf_is_refused_or_loaded) {
  const std::string file =
      test::read_file(RAPT_SOURCE_DIR "/models/stories260K/stories260Ktok512.gguf");
  const std::string name = "damaged.gguf";
  // Metadata and tensor list take the first 15 KB.
  expect_error_or_success(file, 15000, 3000, [&](const std::string& damaged) {
    load_gguf(test::view(damaged, name), {.num_threads = 1});
  });
}

TEST(Mutation, small_gguf_is_refused_or_loaded) {
  const std::string file = test::TinyLlama{}.gguf(), name = "damaged.gguf";
  expect_error_or_success(file, 2000, 5000, [&](const std::string& damaged) {
    load_gguf(test::view(damaged, name), {.num_threads = 1});
  });
}

TEST(Mutation, llama2c_is_refused_or_loaded) {
  const std::string file = test::TinyLlama{}.llama2c(), name = "damaged.bin";
  expect_error_or_success(file, 28, 2000, [&](const std::string& damaged) {
    load_llama2c(test::view(damaged, name), {.num_threads = 1});
  });
}

TEST(Mutation, safetensors_are_refused_or_loaded) {
  const test::TinyLlama tiny;
  const std::string config = tiny.config_json(), config_name = "config.json";
  const std::string file = safetensors(tiny.weights(), "F32"), name = "damaged.safetensors";
  expect_error_or_success(file, 2500, 2000, [&](const std::string& damaged) {
    assemble_safetensors(test::view(config, config_name), {test::view(damaged, name)},
                         {.num_threads = 1});
  });
  expect_error_or_success(config, config.size(), 2000, [&](const std::string& damaged) {
    assemble_safetensors(test::view(damaged, config_name), {test::view(file, name)},
                         {.num_threads = 1});
  });
}

}  // namespace
}  // namespace llm
