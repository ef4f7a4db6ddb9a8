// The device text of this folder, as it was when the library was built (cmake/embed_texts.cmake).
#pragma once

#include <span>
#include <string_view>

namespace llm::cuda {

struct HeaderText {
  std::string_view name, text;
};

std::span<const HeaderText> embedded_headers();

}  // namespace llm::cuda
