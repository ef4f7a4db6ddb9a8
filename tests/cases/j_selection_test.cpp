// Public reports, section J: overrides that are honoured or refused, group sizes, and selections
// that hold.
#include "support/check.hpp"

namespace rapt::test {
namespace {

std::string refusal_of(const AttentionSpec& spec, const DeviceInfo& device,
                       const SelectOptions& options, ErrorCode code) {
  try {
    const Selection selection = select(spec, device, options);
    return std::string("selected ") + to_string(selection.backend);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

TEST(ChoiceOnCpu, J01_an_unknown_backend_is_an_error_that_lists_the_known_ones) {
  const AttentionSpec spec = make_spec(DType::kBFloat16, 8, 2, 64);
  const std::string text =
      refusal_of(spec, host_cpu(), {.backend = "NOPE"}, ErrorCode::kInvalidArgument);
  for (const char* name : {"NOPE", "flash_attention", "flashinfer", "portable", "flex",
                           "turboquant", "paged_attention", "cpu", "reference"})
    EXPECT_NE(text.find(name), std::string::npos) << name << " in: " << text;
}

TEST(ChoiceOnCpu, J01_a_forced_backend_that_does_not_fit_gives_all_its_reasons) {
  AttentionSpec spec = make_spec(DType::kBFloat16, 8, 2, 40);
  for (const char* device_name : {"cpu", "h100"}) {
    const DeviceInfo device = device_info(device_name);
    const std::string text =
        refusal_of(spec, device, {.backend = "flashinfer"}, ErrorCode::kUnsupported);
    for (const BackendVerdict& verdict : explain(spec, device, {.backend = "flashinfer"})) {
      if (verdict.backend != BackendId::kFlashInfer) continue;
      EXPECT_FALSE(verdict.accepted);
      EXPECT_FALSE(verdict.reasons.empty());
      for (const std::string& reason : verdict.reasons)
        EXPECT_NE(text.find(reason), std::string::npos) << reason << " in: " << text;
    }
  }
}

TEST(ChoiceOnCpu, J01_a_forced_backend_that_fits_one_layer_type_only_is_not_swapped_for_the_other) {
  const AttentionSpec fits = make_spec(DType::kBFloat16, 8, 2, 64);
  const AttentionSpec does_not = make_spec(DType::kBFloat16, 8, 2, 12);  // the CPU's: times 8
  EXPECT_EQ(select(fits, host_cpu(), {.backend = "cpu"}).backend, BackendId::kCpu);
  const std::string text =
      refusal_of(does_not, host_cpu(), {.backend = "cpu"}, ErrorCode::kUnsupported);
  EXPECT_NE(text.find("head_dim"), std::string::npos) << text;
  const Selection unforced = select(does_not, host_cpu(), {});
  EXPECT_EQ(unforced.backend, BackendId::kReference);
  EXPECT_NE(unforced.explain().find("head_dim"), std::string::npos) << unforced.explain();
}

TEST(Choice, J01_a_forced_backend_is_the_one_that_runs) {
  const AttentionSpec spec = make_spec(DType::kBFloat16, 8, 2, 64);
  for (const Backend& backend : backends_for(spec)) {
    const Attention attention(context_of(backend), spec, {.backend = backend.name});
    EXPECT_EQ(to_string(attention.selection().backend), backend.name);
  }
}

TEST(Choice, J02_any_group_size_decodes_and_prefills) {
  for (auto [hq, hkv] : {std::pair{40, 8}, {24, 4}, {28, 4}, {64, 4}, {32, 1}, {9, 3}, {71, 1}})
    for (DType dtype : {finest_dtype(), DType::kBFloat16}) {
      if (on_emulator() && hq != 40) continue;
      Problem problem{.spec = make_spec(dtype, hq, hkv, 64), .requests = {{1, 37}, {1, 5}}};
      expect_oracle(problem);
      problem.requests = {{1, 20}, {18, 21}, {2, 33}};
      expect_oracle(problem);
    }
}

// Whatever the selector answers on any device, the answer agrees with itself: the chosen backend
// is an accepted verdict, is accepted by name, and no accepted verdict carries a reason. Where the
// device is the test's, it also runs.
TEST(Choice, J04_the_chosen_backend_passes_its_own_checks) {
  const std::vector<std::string> devices = known_device_names();
  const Backend here{.name = "", .num_threads = 1, .device = test_device()};
  // Each has kernels of its own on a GPU.
  int64_t chosen = 0, runs = on_cpu() ? 3000 : sized(6, 1);
  for (uint64_t n = 0; n < 3000; n++) {
    auto pick = [&, tag = 0](auto... values) mutable {
      const std::array options{values...};
      return options[size_t(uniform_of(n, 40, ++tag) * options.size())];
    };
    AttentionSpec spec = make_spec(pick(DType::kFloat32, DType::kFloat16, DType::kBFloat16),
                                   pick(8, 40, 71), 1, pick(40, 64, 72, 80, 128, 192, 256, 512));
    spec.num_kv_heads = pick(1, spec.num_query_heads);
    spec.head_dim_vo = pick(0, 0, 64, 128);
    spec.kv_format =
        pick(KvFormat::kAuto, KvFormat::kAuto, KvFormat::kAuto, KvFormat::kFp8E4M3,
             KvFormat::kNvfp4, KvFormat::kFp8E5M2, KvFormat::kTurboQuantK8V4, KvFormat::kBFloat16);
    spec.page_size = pick(0, 1, 16, 64, 256, 544);
    spec.window = pick(Window{}, Window{127, 0}, Window{-1, 0});
    spec.softcap = pick(0.0f, 30.0f);
    spec.sinks = pick(false, true);
    spec.alibi = pick(false, false, true);
    spec.custom_mask = pick(false, false, true);
    spec.needs_lse = pick(false, true);
    spec.batch_invariant = pick(false, true);
    spec.causal = pick(false, true);
    spec.kv_scales = pick(KvScales::kNone, KvScales::kPerTensor, KvScales::kPerHead);
    const DeviceInfo device =
        n % 2 ? context_of(here).device()
              : device_info(devices[size_t(uniform_of(n, 41) * devices.size())]);
    SCOPED_TRACE(device.name + ": " + Problem{.spec = spec}.describe());
    try {
      validate(spec);
    } catch (const Error&) {
      continue;
    }
    for (const BackendVerdict& verdict : explain(spec, device))
      EXPECT_EQ(verdict.accepted, verdict.reasons.empty()) << to_string(verdict.backend);
    Selection selection;
    try {
      selection = select(spec, device);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      continue;
    }
    chosen++;
    bool accepted = false;
    for (const BackendVerdict& verdict : selection.verdicts)
      accepted |= verdict.backend == selection.backend && verdict.version == selection.version &&
                  verdict.accepted;
    EXPECT_TRUE(accepted) << selection.explain();
    const Selection named = select(spec, device, {.backend = to_string(selection.backend)});
    EXPECT_EQ(named.backend, selection.backend);
    const Problem problem{.spec = spec, .requests = {{1, 9}, {3, 5}}};
    if (n % 8 == 1 && runs-- > 0) {
      Backend its = here;
      its.name = to_string(selection.backend);
      EXPECT_EQ(run(problem, its).fault, "");
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(chosen, 100);
}

}  // namespace
}  // namespace rapt::test
