#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace rapt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Explain, lists_the_choice_first_and_every_backend_with_its_reasons) {
  const Selection selection = select(make_spec(), device_info("cpu"));
  EXPECT_THAT(selection.explain(), StartsWith("chosen: cpu, layout NHD, pages of 16"));
  EXPECT_EQ(selection.verdicts.size(), kAllBackends.size());
  for (const BackendVerdict& verdict : selection.verdicts) {
    EXPECT_THAT(selection.explain(), HasSubstr(to_string(verdict.backend)));
    for (const std::string& reason : verdict.reasons)
      EXPECT_THAT(selection.explain(), HasSubstr(reason));
  }
}

TEST(Explain, what_is_not_built_says_so_last) {
  for (const char* device : {"cpu", "h100", "b200"})
    for (const BackendVerdict& verdict : explain(make_spec(40), device_info(device))) {
      const bool built = verdict.backend == BackendId::kCpu ||
                         verdict.backend == BackendId::kReference ||
                         (RAPT_CUDA && verdict.version == 2);
      EXPECT_EQ(verdict.not_built, !built);
      if (!built) {
        EXPECT_THAT(verdict.reasons.back(), StartsWith("not built"));
      }
    }
}

TEST(Explain, where_nothing_built_fits_the_first_that_would_is_named) {
  const DeviceInfo h100 = device_info("h100");
  AttentionSpec spec = make_spec();
  spec.kv_format = KvFormat::kFp8E4M3;
  spec.sinks = true;
  try {
    select(spec, h100);
    FAIL() << "a GPU backend was chosen";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (BackendId backend : kAllBackends) EXPECT_THAT(error.what(), HasSubstr(to_string(backend)));
  }
  const std::vector<BackendVerdict> verdicts = explain(spec, h100);
  const auto would_be = [](const BackendVerdict& verdict) {
    return std::count(verdict.notes.begin(), verdict.notes.end(),
                      "would be chosen once its kernels are built");
  };
  EXPECT_TRUE(verdicts[0].fits_but_not_built());
  EXPECT_EQ(would_be(verdicts[0]), 1);
  for (size_t i = 1; i < verdicts.size(); i++) EXPECT_EQ(would_be(verdicts[i]), 0);
  EXPECT_EQ(chosen(spec, "h100"), "flash_attention 3");
}

TEST(Explain, the_most_general_generation_stands_in_for_what_another_cannot) {
  using testing::Contains;
  const DeviceInfo h100 = device_info("h100");
  const IsBuilt second_only = [](const Capability& row) { return row.version == 2; };
  const Selection selection = select({make_spec(), h100, {}}, second_only);
  EXPECT_EQ(selection.backend, BackendId::kFlashAttention);
  EXPECT_EQ(selection.version, 2);
  EXPECT_THAT(selection.verdicts[0].notes,
              Contains("version 2 instead of 3: not built: its kernels are not in this library "
                       "yet"));
  // Once all are built, too.
  AttentionSpec spec = make_spec();
  spec.custom_mask = true;
  EXPECT_EQ(chosen(spec, "h100"), "flash_attention 2");
  EXPECT_THAT(verdict(BackendId::kFlashAttention, spec, "h100").notes,
              Contains("version 2 instead of 3: custom_mask is on: must be off with "
                       "FlashAttention 3"));
  // Not for one that was asked for.
  EXPECT_EQ(chosen(spec, "h100", {.backend = "flash_attention", .flash_attention_version = 3}),
            "none");
  EXPECT_THROW(select({make_spec(), h100, {.flash_attention_version = 3}}, second_only), Error);
}

// As later work will have it: some kernels built, others not.
TEST(Explain, among_built_and_unbuilt_kernels_the_first_built_one_is_chosen) {
  const auto notes = [](BackendId backend, IsBuilt is_built) {
    return testing::PrintToString(verdict(backend, make_spec(), "h100", {}, is_built).notes);
  };
  const DeviceInfo h100 = device_info("h100");
  const IsBuilt portable_only = [](const Capability& row) {
    return row.backend == BackendId::kPortable;
  };
  EXPECT_EQ(select({make_spec(), h100, {}}, portable_only).backend, BackendId::kPortable);
  EXPECT_THAT(notes(BackendId::kFlashAttention, portable_only), HasSubstr("would be chosen"));
  const IsBuilt flash_only = [](const Capability& row) {
    return row.backend == BackendId::kFlashAttention;
  };
  EXPECT_EQ(select({make_spec(), h100, {}}, flash_only).backend, BackendId::kFlashAttention);
  for (BackendId backend : kAllBackends)
    EXPECT_THAT(notes(backend, flash_only), testing::Not(HasSubstr("would be chosen")));
}

TEST(Explain, where_one_is_accepted_none_would_be_chosen_instead) {
  for (const BackendVerdict& verdict : explain(make_spec(), device_info("cpu")))
    EXPECT_THAT(verdict.notes, testing::Not(testing::Contains(HasSubstr("would be chosen"))));
}

TEST(Explain, a_named_backend_that_refuses_gives_its_own_reasons_only) {
  AttentionSpec spec = make_spec(40);
  try {
    select(spec, device_info("h100"), {.backend = "flashinfer"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("backend flashinfer was asked for"));
    EXPECT_THAT(error.what(), HasSubstr("head_dim_qk is 40: must be 64, 128, 256 or 512"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("portable")));
  }
}

TEST(Explain, a_named_backend_is_chosen_over_better_ones) {
  const Selection selection = select(make_spec(), device_info("cpu"), {.backend = "reference"});
  EXPECT_EQ(selection.backend, BackendId::kReference);
}

// Per layer: a name that holds for one layer's spec and not for another's is refused there.
TEST(Explain, a_name_valid_for_one_layer_only_fails_for_the_other) {
  const DeviceInfo h100 = device_info("h100");
  AttentionSpec full = make_spec(), other = make_spec();
  other.alibi = true;
  const SelectOptions options{.backend = "flashinfer"};
  EXPECT_EQ(select({full, h100, options}, all_built).backend, BackendId::kFlashInfer);
  EXPECT_THROW(select({other, h100, options}, all_built), Error);
}

TEST(Explain, notes_say_how_pages_are_read) {
  AttentionSpec spec = make_spec();
  spec.page_size = 256;
  EXPECT_THAT(
      verdict(BackendId::kFlashInfer, spec, "h100").notes,
      ElementsAre("FlashInfer native kernels", "pages of 256 are read as 4 kernel pages of 64"));
}

TEST(Explain, names_are_read_back) {
  for (BackendId backend : kAllBackends) EXPECT_EQ(parse_backend(to_string(backend)), backend);
  EXPECT_FALSE(parse_backend("CPU").has_value());
  EXPECT_FALSE(parse_backend("").has_value());
}

}  // namespace
}  // namespace rapt
