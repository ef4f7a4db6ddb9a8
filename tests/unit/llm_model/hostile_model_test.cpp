// load_model() on paths that hold no model.
#include <gtest/gtest.h>

#include "llm/model/model.hpp"
#include "unit/llm_model/tiny_llama.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;

TEST(LoadModel, recognises_formats_by_content) {
  const test::TinyLlama tiny;
  const test::TemporaryFolder folder;
  test::expect_weights(load_model(folder.write("a.bin", tiny.gguf())), tiny);
  test::expect_weights(load_model(folder.write("b.gguf", tiny.llama2c())), tiny);
}

TEST(LoadModel, names_the_path_that_cannot_be_read) {
  const test::TemporaryFolder folder;
  expect_error(ErrorCode::kIo, {"/nowhere/model.gguf", "No such file"},
               [] { load_model("/nowhere/model.gguf"); });
  expect_error(ErrorCode::kIo, {"/dev/null", "not a regular file"},
               [] { load_model("/dev/null"); });
  expect_error(ErrorCode::kIo, {folder.path(), "model.safetensors"},
               [&] { load_model(folder.path()); });
  const std::string empty = folder.write("empty", "");
  expect_error(ErrorCode::kIo, {empty, "truncated"}, [&] { load_model(empty); });
}

TEST(LoadModel, names_formats_it_does_not_read) {
  const test::TemporaryFolder folder;
  const std::string newer = folder.write("v1.bin", "24ka\1\0\0\0" + std::string(300, '\0'));
  expect_error(ErrorCode::kInvalidArgument, {newer, "version 1"}, [&] { load_model(newer); });
  const std::string text = folder.write("text", "This is no model at all, only some text.");
  EXPECT_THROW(load_model(text), rapt::Error);
}

}  // namespace
}  // namespace llm
