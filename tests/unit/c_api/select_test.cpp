#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

rapt_attention_spec plain_spec() {
  return {.struct_size = sizeof(rapt_attention_spec),
          .num_query_heads = 32,
          .num_kv_heads = 8,
          .head_dim_qk = 128,
          .dtype = {kDLBfloat, 16, 1},
          .page_size = 16};
}

TEST(CSelect, chooses_as_the_cpp_interface_does) {
  const rapt_attention_spec spec = plain_spec();
  rapt_selection selection{};
  selection.struct_size = sizeof selection;
  ASSERT_TRUE(succeeded(rapt_select(&spec, nullptr, nullptr, &selection)));
  const Selection expected =
      select({.num_query_heads = 32, .num_kv_heads = 8, .head_dim_qk = 128}, host_cpu());
  EXPECT_STREQ(selection.backend, to_string(expected.backend));
  EXPECT_EQ(selection.version, expected.version);
  EXPECT_EQ(selection.page_size, expected.page_size);
  EXPECT_EQ(selection.layout, static_cast<int>(expected.layout));
  EXPECT_EQ(selection.graph, static_cast<int>(expected.graph));

  const rapt_select_options named{
      .struct_size = sizeof named, .backend = "reference", .has_layout = 1, .layout = RAPT_HND};
  ASSERT_TRUE(succeeded(rapt_select(&spec, "cpu", &named, &selection)));
  EXPECT_STREQ(selection.backend, "reference");
  EXPECT_EQ(selection.layout, RAPT_HND);
}

TEST(CSelect, tells_every_verdict_with_all_its_reasons) {
  const rapt_attention_spec spec = plain_spec();
  const auto expected =
      explain({.num_query_heads = 32, .num_kv_heads = 8, .head_dim_qk = 128}, device_info("h100"));
  rapt_verdicts* verdicts = nullptr;
  ASSERT_TRUE(succeeded(rapt_explain(&spec, "h100", nullptr, &verdicts)));
  size_t count = 0, reasons = 0;
  EXPECT_TRUE(succeeded(rapt_verdicts_count(verdicts, &count)));
  ASSERT_EQ(count, expected.size());
  rapt_verdict verdict{};
  verdict.struct_size = sizeof verdict;
  for (size_t i = 0; i < count; i++) {
    ASSERT_TRUE(succeeded(rapt_verdicts_get(verdicts, i, &verdict)));
    EXPECT_STREQ(verdict.backend, to_string(expected[i].backend));
    EXPECT_EQ(verdict.version, expected[i].version);
    EXPECT_EQ(verdict.accepted, expected[i].accepted ? 1 : 0);
    EXPECT_EQ(std::vector<std::string>(verdict.reasons, verdict.reasons + verdict.num_reasons),
              expected[i].reasons);
    EXPECT_EQ(std::vector<std::string>(verdict.notes, verdict.notes + verdict.num_notes),
              expected[i].notes);
    reasons += verdict.num_reasons;
  }
  EXPECT_GT(reasons, 0u);
  EXPECT_TRUE(refused(rapt_verdicts_get(verdicts, count, &verdict), RAPT_INVALID_ARGUMENT,
                      "there are " + std::to_string(count)));
  rapt_verdicts_destroy(verdicts);
}

TEST(CSelect, refuses_unknown_names_and_backends_that_do_not_accept) {
  const rapt_attention_spec spec = plain_spec();
  rapt_selection selection{};
  selection.struct_size = sizeof selection;
  rapt_select_options options{.struct_size = sizeof options, .backend = "flashattention"};
  EXPECT_TRUE(refused(rapt_select(&spec, nullptr, &options, &selection), RAPT_INVALID_ARGUMENT,
                      "flashattention"));
  options.backend = "flash_attention";
  EXPECT_EQ(rapt_select(&spec, nullptr, &options, &selection), RAPT_UNSUPPORTED);
  EXPECT_TRUE(
      refused(rapt_select(&spec, "abacus", nullptr, &selection), RAPT_INVALID_ARGUMENT, "abacus"));
  EXPECT_EQ(selection.backend, nullptr);

  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(nullptr, &context)));
  rapt_attention* attention = nullptr;
  EXPECT_EQ(rapt_attention_create(context, &spec, &options, &attention), RAPT_UNSUPPORTED);
  EXPECT_EQ(attention, nullptr);
  rapt_context_destroy(context);
}

TEST(CSelect, refuses_malformed_specs_and_options) {
  auto refuses = [](const char* words, auto spoil) {
    rapt_attention_spec spec = plain_spec();
    spoil(spec);
    rapt_selection selection{};
    selection.struct_size = sizeof selection;
    EXPECT_TRUE(
        refused(rapt_select(&spec, nullptr, nullptr, &selection), RAPT_INVALID_ARGUMENT, words));
  };
  using Spec = rapt_attention_spec;
  refuses("spec->struct_size is 0", [](Spec& s) { s.struct_size = 0; });
  refuses("spec->dtype has DLPack type code 0 with 0 bits", [](Spec& s) {
    s.dtype.code = 0;
    s.dtype.bits = 0;
  });
  refuses("spec->dtype has 0 lanes", [](Spec& s) { s.dtype.lanes = 0; });
  refuses("num_kv_heads", [](Spec& s) { s.num_kv_heads = 5; });
  refuses("spec->kv_format is 14", [](Spec& s) { s.kv_format = 14; });
  refuses("spec->kind is -1", [](Spec& s) { s.kind = -1; });
  refuses("spec->causal is 3", [](Spec& s) { s.causal = 3; });
  refuses("has_window is 0", [](Spec& s) { s.window_left = 127; });
  refuses("spec->sinks is 2", [](Spec& s) { s.sinks = 2; });
  refuses("spec->kv_scales is 4", [](Spec& s) { s.kv_scales = 4; });
  refuses("scale", [](Spec& s) { s.scale = NAN; });

  auto refuses_options = [](const char* words, rapt_select_options options) {
    options.struct_size = sizeof options;
    const rapt_attention_spec spec = plain_spec();
    rapt_selection selection{};
    selection.struct_size = sizeof selection;
    EXPECT_TRUE(
        refused(rapt_select(&spec, nullptr, &options, &selection), RAPT_INVALID_ARGUMENT, words));
  };
  refuses_options("has_layout is 0", {.layout = RAPT_HND});
  refuses_options("options->layout is 2", {.has_layout = 1, .layout = 2});
  refuses_options("reserved is 1", {.reserved = 1});
}

}  // namespace
}  // namespace rapt::test
