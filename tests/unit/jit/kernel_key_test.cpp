#include "jit/kernel_key.hpp"

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::HasSubstr;

TEST(Architecture, is_read_as_it_is_written) {
  EXPECT_EQ(parse_architecture("80"), (Architecture{80, 0}));
  EXPECT_EQ(parse_architecture("sm_90a"), (Architecture{90, 'a'}));
  EXPECT_EQ(parse_architecture("100f"), (Architecture{100, 'f'}));
  for (const char* text : {"sm_75", "sm_80", "sm_90a", "sm_100f", "sm_121a"})
    EXPECT_EQ(parse_architecture(text).name(), text);
  for (const char* text : {"", "a", "sm_", "90b", "90aa", "9.0", "-80", "74", "1000", "compute_90"})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { parse_architecture(text); }),
                HasSubstr(concat("architecture is \"", text, "\"")));
}

// "CUDA C++ Programming Guide", Binary Compatibility; Family-Specific and Architecture-Specific.
TEST(Architecture, code_runs_where_the_guide_says) {
  const auto runs = [](const char* code, int32_t device) {
    return parse_architecture(code).runs_on(device);
  };
  EXPECT_TRUE(runs("80", 80) && runs("80", 86) && runs("80", 89));
  EXPECT_FALSE(runs("80", 90) || runs("86", 80) || runs("80", 75) || runs("80", 120));
  EXPECT_TRUE(runs("90a", 90) && runs("100a", 100) && runs("120a", 120));
  EXPECT_FALSE(runs("100a", 103) || runs("120a", 121) || runs("90a", 100));
  EXPECT_TRUE(runs("100f", 100) && runs("100f", 103) && runs("120f", 121));
  EXPECT_FALSE(runs("103f", 100) || runs("100f", 120));
}

TEST(KernelKey, text_names_all_values_in_one_order) {
  const KernelKey key = KernelKey("attention", {90, 'a'})
                            .number("head_dim_qk", 128)
                            .type("element", "Bf16")
                            .flag("causal", true)
                            .number("window", -1);
  EXPECT_EQ(key.text(), "attention sm_90a causal=true element=Bf16 head_dim_qk=128 window=-1");
  const KernelKey other = KernelKey("attention", {90, 'a'})
                              .number("window", -1)
                              .flag("causal", true)
                              .type("element", "Bf16")
                              .number("head_dim_qk", 128);
  EXPECT_EQ(other.text(), key.text());
}

TEST(KernelKey, names_that_would_blur_the_text_are_refused) {
  const auto refused = [](const auto& action) {
    return error_of(ErrorCode::kInvalidArgument, action);
  };
  for (const char* name : {"", "a b", "a=b", "1a", "a-b", "\xc3\xa9", "a\n"}) {
    EXPECT_THAT(refused([&] { KernelKey(name, {80}); }), HasSubstr("must be an identifier"));
    EXPECT_THAT(refused([&] { KernelKey("k", {80}).number(name, 1); }), HasSubstr("identifier"));
    EXPECT_THAT(refused([&] { KernelKey("k", {80}).type("t", name); }), HasSubstr("identifier"));
  }
  EXPECT_EQ(refused([] { KernelKey("k", {80}).number("n", 1).flag("n", true); }),
            "kernel k: \"n\" is in its key already");
}

}  // namespace
}  // namespace rapt::jit
