#include "bench/shapes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rapt/error.hpp"

namespace rapt::bench {
namespace {

TEST(Shapes, a_line_is_every_combination_of_its_lists) {
  const std::vector<Shape> shapes = parse_shapes(
      "# comment\n"
      "prefill m heads=8/2 dim=64 dtype=fp16 queries=4 keys=10,20 causal=no,yes page=0\n"
      "decode n keys=7 layout=hnd cache=kv_pages state=warm requests=3 quick # end\n",
      "file");
  ASSERT_EQ(shapes.size(), 5u);
  const Shape& second = shapes[1];
  EXPECT_EQ(second.phase, Phase::kPrefill);
  EXPECT_EQ(second.name, "m");
  EXPECT_EQ(second.query_heads, 8);
  EXPECT_EQ(second.kv_heads, 2);
  EXPECT_EQ(second.head_dim, 64);
  EXPECT_EQ(second.dtype, DType::kFloat16);
  EXPECT_EQ(second.queries, 4);
  EXPECT_EQ(second.keys, 10);
  EXPECT_TRUE(second.causal);
  EXPECT_EQ(second.page_size, 0);
  EXPECT_FALSE(second.quick);
  EXPECT_EQ(shapes[3].keys, 20);
  const Shape& last = shapes[4];
  EXPECT_EQ(last.layout, KvLayout::kHND);
  EXPECT_EQ(last.cache_shape, KvShape::kKvPages);
  EXPECT_FALSE(last.cold);
  EXPECT_EQ(last.requests, 3);
  EXPECT_TRUE(last.quick);
}

TEST(Shapes, a_refusal_names_file_line_and_word) {
  try {
    parse_shapes("plan a keys=1\nplan b keys=-1\n", "some.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::StartsWith("some.txt:2: \"keys=-1\": must be"));
  }
}

TEST(Shapes, the_built_in_corpus_has_every_phase_also_when_quick) {
  const std::vector<Shape> shapes = default_cpu_shapes();
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kPlan})
    EXPECT_TRUE(std::any_of(shapes.begin(), shapes.end(), [&](const Shape& shape) {
      return shape.phase == phase && shape.quick;
    })) << to_string(phase);
}

}  // namespace
}  // namespace rapt::bench
