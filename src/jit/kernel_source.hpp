// The text of a kernel, as the compiler gets it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/hash.hpp"
#include "jit/kernel_key.hpp"

namespace rapt::jit {

// A file of device text by the name that others include it by.
struct HeaderText {
  std::string_view name, text;
};

// All files below src/kernels, as they were when the library was built.
std::span<const HeaderText> embedded_headers();

// What host and device must agree on: compiling fails unless the device's expression has the
// host's value.
struct Agreement {
  std::string expression;  // "sizeof(AttentionParams)"
  int64_t value = 0;
};

// How a kernel is made of device text. A value of the key is `key::NAME` in it: a constant
// (long long or bool) or a type.
struct KernelSource {
  std::string header;    // what it includes: "prefill/attention_sm80.cuh"
  std::string function;  // the entry's name, for the driver
  // The entry: extern "C" GLOBAL void function(...) {...}, in namespace rapt::device.
  std::string entry;
  std::vector<Agreement> agreements;
  std::span<const HeaderText> headers = embedded_headers();
};

// What is compiled, and the hash of all that decides the result but for the compiler.
struct TranslationUnit {
  std::string key;  // its text
  Architecture architecture;
  std::string text;
  std::vector<HeaderText> headers;  // those that the text reaches
  std::vector<std::string> options;
  Hash128 hash;
};

// Throws Error(kInternal) where the text reaches a header that is not among the source's.
TranslationUnit translation_unit(const KernelKey& key, const KernelSource& source);

}  // namespace rapt::jit
