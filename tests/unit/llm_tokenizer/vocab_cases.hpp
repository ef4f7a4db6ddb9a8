// The recorded cases of tests/data/vocab: texts and the ids that other implementations give them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "support/source_dir.hpp"
#include "unit/llm_model/file_writing.hpp"

namespace llm::test {

struct VocabCase {
  std::string text;
  std::vector<int32_t> ids;
};

inline std::string vocab_file(const std::string& name) {
  return RAPT_SOURCE_DIR "/tests/data/vocab/ggml-vocab-" + name + ".gguf";
}

// .inp: texts, each followed by a separating line; .out: a line of ids for each.
inline std::vector<VocabCase> vocab_cases(const std::string& name) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string texts = read_file(vocab_file(name) + ".inp");
  std::istringstream lines(read_file(vocab_file(name) + ".out"));
  std::vector<VocabCase> cases;
  size_t start = 0;
  for (std::string line; std::getline(lines, line);) {
    VocabCase& recorded = cases.emplace_back();
    const size_t end = texts.find(kSeparator, start);
    EXPECT_NE(end, std::string::npos) << "more lines than texts";
    recorded.text = texts.substr(start, end - start);
    start = end + kSeparator.size();
    std::istringstream numbers(line);
    for (int32_t id; numbers >> id;) recorded.ids.push_back(id);
  }
  EXPECT_EQ(start, texts.size()) << "more texts than lines";
  EXPECT_EQ(cases.size(), 46u);
  return cases;
}

}  // namespace llm::test
