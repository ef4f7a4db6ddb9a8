// Backends whose runs no graph captures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rapt/rapt.hpp"
#include "support/error_of.hpp"

namespace rapt {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr GraphEnvelope kDecoding{
    .max_requests = 2, .max_tokens = 2, .max_query_len = 1, .max_kv_len = 9, .num_pages = 4};

TEST(GraphEnvelopePlan, is_refused_by_backends_on_the_cpu) {
  Context context({.num_threads = 1});
  const AttentionSpec spec{.num_query_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8};
  for (const char* backend : {"cpu", "reference"}) {
    const Attention attention(context, spec, {.backend = backend});
    EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { attention.plan(kDecoding, nullptr); }),
                AllOf(HasSubstr("graph support single_token_decode"),
                      HasSubstr(std::string("backend ") + backend + " has never"),
                      HasSubstr("plan each batch by itself")));
    GraphEnvelope any = kDecoding;
    any.max_query_len = 0;
    EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { attention.plan(any, nullptr); }),
                HasSubstr("up to 2 query tokens of a request take graph support always"));
    any.max_tokens = 0;
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention.plan(any, nullptr); }),
                HasSubstr("max_tokens is 0"));
    Plan plan = attention.plan(Batch{});
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention.replan(plan, {}, nullptr); }),
                HasSubstr("the plan has no graph envelope"));
  }
}

}  // namespace
}  // namespace rapt
