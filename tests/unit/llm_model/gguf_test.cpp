#include "llm/model/gguf.hpp"

#include <gtest/gtest.h>

#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::append;
using test::expect_error;
using test::GgufWriter;

void expect_refused(const std::string& bytes, const std::vector<std::string>& fragments,
                    ErrorCode code = ErrorCode::kIo) {
  const std::string name = "x.gguf";
  std::vector<std::string> all = {"x.gguf"};
  all.insert(all.end(), fragments.begin(), fragments.end());
  expect_error(code, all, [&] { GgufFile gguf(test::view(bytes, name)); });
}

TEST(Gguf, reads_back_each_kind_of_value) {
  const std::string bytes = GgufWriter()
                                .integer("count", 7)
                                .signed_long("below", -5)
                                .custom("byte", GgufWriter::kUint8, "\xff")
                                .real("real", 0.25f)
                                .boolean("flag", true)
                                .text("text", "héllo")
                                .texts("words", {"a", "", "ccc"})
                                .reals("reals", {1.5f, -2})
                                .integers("integers", {1, -1})
                                .finish();
  const std::string name = "x.gguf";
  const GgufFile gguf(test::view(bytes, name));
  EXPECT_EQ(gguf.integer("count"), 7);
  EXPECT_EQ(gguf.integer("below"), -5);
  EXPECT_EQ(gguf.integer("byte"), 255);
  EXPECT_EQ(gguf.real("real"), 0.25);
  EXPECT_EQ(gguf.real("count"), 7.0);
  EXPECT_EQ(gguf.boolean("flag"), true);
  EXPECT_EQ(gguf.text("text"), "héllo");
  EXPECT_EQ(gguf.texts("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(gguf.reals("reals"), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(gguf.integers("integers"), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(gguf.integer("missing"), std::nullopt);
  expect_error(ErrorCode::kIo, {"x.gguf", "text", "integer"}, [&] { gguf.integer("text"); });
  expect_error(ErrorCode::kIo, {"count", "a string"}, [&] { gguf.text("count"); });
  expect_error(ErrorCode::kIo, {"count", "an array"}, [&] { gguf.texts("count"); });
  expect_error(ErrorCode::kIo, {"words", "float32"}, [&] { gguf.reals("words"); });
  expect_error(ErrorCode::kIo, {"missing is missing"}, [&] { gguf.required_integer("missing"); });
}

TEST(Gguf, tensors_lie_at_the_alignment_the_file_names) {
  GgufWriter writer;
  writer.alignment = 128;
  writer.integer("general.alignment", 128).tensor("a", {1}, 0, "1234").tensor("b", {1}, 0, "5678");
  const std::string bytes = writer.finish(), name = "x.gguf";
  const GgufFile gguf(test::view(bytes, name));
  const auto b = gguf.tensor_bytes("b", gguf.tensors().at("b"), 4);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(b.data()), b.size()), "5678");
  EXPECT_EQ(gguf.tensors().at("b").offset, 128u);
}

TEST(Gguf, refuses_other_magic_and_versions) {
  expect_refused("GGU", {"truncated"});
  expect_refused("GGML....................", {"does not begin with GGUF"});
  GgufWriter old, swapped;
  old.version = 1;
  swapped.version = 0x03000000;
  expect_refused(old.finish(), {"version is 1"}, ErrorCode::kInvalidArgument);
  expect_refused(swapped.finish(), {"big-endian"}, ErrorCode::kInvalidArgument);
}

TEST(Gguf, refuses_counts_that_the_file_cannot_hold) {
  GgufWriter keys, tensors;
  keys.integer("a", 1).extra_keys = int64_t{1} << 60;
  tensors.integer("a", 1).extra_tensors = int64_t{1} << 60;
  expect_refused(keys.finish(), {"the number of keys is 1152921504606846977", "hold at most"});
  expect_refused(tensors.finish(), {"the number of tensors is 1152921504606846976"});
  std::string array;
  append(array, uint32_t{GgufWriter::kFloat32});
  append(array, uint64_t{0x4000000000000001});  // times 4 wraps to 4
  array += "1234";
  expect_refused(GgufWriter().custom("a", GgufWriter::kArray, array).finish(),
                 {"an array's length is 4611686018427387905"});
}

TEST(Gguf, refuses_strings_longer_than_the_file) {
  std::string lying;
  append(lying, UINT64_MAX - 7);  // position + length wraps
  lying += "abc";
  expect_refused(GgufWriter().custom("a", GgufWriter::kString, lying).finish(),
                 {"a metadata value", "18446744073709551608 bytes"});
  std::string strings;
  append(strings, uint32_t{GgufWriter::kString});
  append(strings, uint64_t{2});
  GgufWriter::append_text(strings, "fine");
  append(strings, uint64_t{1} << 40);
  strings += std::string(64, 'x');
  expect_refused(GgufWriter().custom("a", GgufWriter::kArray, strings).finish(),
                 {"a string of an array"});
}

TEST(Gguf, refuses_arrays_of_arrays_and_unknown_types) {
  std::string nested;
  for (int depth = 0; depth < 1000; ++depth) {
    append(nested, uint32_t{GgufWriter::kArray});
    append(nested, uint64_t{1});
  }
  expect_refused(GgufWriter().custom("a", GgufWriter::kArray, nested).finish(), {"holds arrays"},
                 ErrorCode::kInvalidArgument);
  expect_refused(GgufWriter().custom("key", 77, "12345678").finish(), {"key", "type 77"});
  std::string unknown;
  append(unknown, uint32_t{78});
  append(unknown, uint64_t{0});
  expect_refused(GgufWriter().custom("a", GgufWriter::kArray, unknown).finish(), {"type 78"});
}

TEST(Gguf, refuses_names_that_appear_twice) {
  expect_refused(GgufWriter().integer("same", 1).integer("same", 2).finish(),
                 {"key same appears twice"});
  expect_refused(GgufWriter().tensor("t", {1}, 0, "1234").tensor("t", {1}, 0, "1234").finish(),
                 {"tensor t appears twice"});
}

TEST(Gguf, refuses_odd_ranks_and_offsets) {
  expect_refused(GgufWriter().tensor("t", {1, 1, 1, 1, 1}, 0, "1234").finish(), {"t has rank 5"});
  expect_refused(GgufWriter().tensor_at("t", {1}, 0, 4).finish(),
                 {"tensor t", "offset 4", "alignment, 32"});
}

TEST(Gguf, refuses_alignments_that_are_none) {
  for (const uint32_t alignment : {0u, 1u, 24u, 0x80000000u})
    expect_refused(GgufWriter().integer("general.alignment", alignment).finish(),
                   {"general.alignment is " + std::to_string(alignment)});
}

TEST(Gguf, gives_no_bytes_past_the_end) {
  const std::string name = "x.gguf";
  const std::string bytes = GgufWriter()
                                .tensor("t", {8}, 0, std::string(32, 'x'))
                                .tensor_at("far", {1}, 0, uint64_t{1} << 63)
                                .finish();
  const GgufFile gguf(test::view(bytes, name));
  const auto take = [&](const char* tensor, uint64_t num_bytes) {
    gguf.tensor_bytes(tensor, gguf.tensors().at(tensor), num_bytes);
  };
  take("t", 32);
  expect_error(ErrorCode::kIo, {"tensor t", "33 bytes", "data has 32"}, [&] { take("t", 33); });
  expect_error(ErrorCode::kIo, {"tensor t"}, [&] { take("t", UINT64_MAX); });
  expect_error(ErrorCode::kIo, {"tensor far"}, [&] { take("far", 0); });
}

TEST(Gguf, every_truncation_is_an_error) {
  const std::string whole = GgufWriter()
                                .text("general.architecture", "llama")
                                .texts("words", {"a", "bc"})
                                .integers("n", {1, 2, 3})
                                .tensor("t", {1}, 0, "1234")
                                .finish();
  const size_t header_end = whole.size() - 32 - 4;  // at least the padding before the data
  for (size_t length = 0; length + 32 < header_end; ++length) {
    const std::string cut = whole.substr(0, length), name = "x.gguf";
    EXPECT_THROW(GgufFile(test::view(cut, name)), rapt::Error) << length;
  }
}

}  // namespace
}  // namespace llm
