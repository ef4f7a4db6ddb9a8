#include "jit/kernel_source.hpp"

#include <set>

#include "support/source_dir.hpp"
#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::ElementsAre;

// a.cuh reaches b.cuh, which reaches a.cuh again and d.cuh, which reaches e.cuh; c.cuh is only in a
// comment.
constexpr HeaderText kFiles[] = {
    {"x/a.cuh", "#pragma once\n#include \"x/b.cuh\"\nstruct Params;\n"},
    {"x/b.cuh", "#include \"x/a.cuh\"\n#include \"x/d.cuh\"\n// #include \"x/c.cuh\"\n"},
    {"x/c.cuh", "int c;\n"},
    {"x/d.cuh", "#include \"x/e.cuh\"\n"},
    {"x/e.cuh", "int e;\n"}};

KernelSource source() {
  return {"x/a.cuh",
          "run",
          "extern \"C\" GLOBAL void run(Params p) {}",
          {{"sizeof(Params)", 96}},
          kFiles};
}

std::vector<std::string> header_names(const TranslationUnit& unit) {
  std::vector<std::string> names;
  for (const HeaderText& header : unit.headers) names.emplace_back(header.name);
  return names;
}

TEST(KernelSource, the_unit_states_key_agreements_and_entry) {
  const KernelKey key =
      KernelKey("k", {80}).number("dim", -5).flag("causal", false).type("element", "Bf16");
  const TranslationUnit unit = translation_unit(key, source());
  EXPECT_EQ(
      unit.text,
      "// k sm_80 causal=false dim=-5 element=Bf16\n"
      "#include \"x/a.cuh\"\n"
      "namespace rapt::device {\n"
      "namespace key {\n"
      "constexpr bool causal = false;\n"
      "constexpr long long dim = -5ll;\n"
      "using element = Bf16;\n"
      "}\n"
      "static_assert((sizeof(Params)) == 96ll, \"host and device disagree: the host has 96\");\n"
      "extern \"C\" GLOBAL void run(Params p) {}\n"
      "}\n");
  EXPECT_EQ(unit.key, key.text());
  EXPECT_THAT(unit.options, testing::Contains("--gpu-architecture=sm_80"));
}

TEST(KernelSource, headers_are_those_that_are_reached_once_each) {
  EXPECT_THAT(header_names(translation_unit(KernelKey("k", {80}), source())),
              ElementsAre("x/a.cuh", "x/b.cuh", "x/d.cuh", "x/e.cuh"));
}

TEST(KernelSource, a_header_that_is_not_there_is_named_with_its_includer) {
  const HeaderText files[] = {{"x/a.cuh", "int a;\n#include \"y/gone.cuh\"\n"}};
  KernelSource broken = source();
  broken.headers = files;
  EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { translation_unit(KernelKey("k", {80}), broken); }),
            "x/a.cuh includes \"y/gone.cuh\", which is no device text");
}

TEST(KernelSource, the_hash_follows_everything_that_decides_the_image) {
  const KernelKey key = KernelKey("k", {80}).number("dim", 64);
  const Hash128 first = translation_unit(key, source()).hash;
  EXPECT_EQ(translation_unit(key, source()).hash, first);
  std::set<Hash128> hashes = {first};
  const auto differs = [&](const KernelKey& other, const KernelSource& text) {
    return hashes.insert(translation_unit(other, text).hash).second;
  };
  EXPECT_TRUE(differs(KernelKey("k", {80}).number("dim", 65), source()));
  EXPECT_TRUE(differs(KernelKey("l", {80}).number("dim", 64), source()));
  EXPECT_TRUE(differs(KernelKey("k", {80, 'a'}).number("dim", 64), source()));
  KernelSource changed = source();
  changed.agreements[0].value++;
  EXPECT_TRUE(differs(key, changed));
  changed = source();
  changed.entry += " ";
  EXPECT_TRUE(differs(key, changed));
  std::vector<HeaderText> files(std::begin(kFiles), std::end(kFiles));
  files[4].text = "int f;\n";
  changed = source();
  changed.headers = files;
  EXPECT_TRUE(differs(key, changed));
  // What is not reached decides nothing.
  files[4] = kFiles[4];
  files[2].text = "int d;\n";
  EXPECT_FALSE(differs(key, changed));
}

// Every file of src/kernels, byte by byte.
TEST(KernelSource, embedded_headers_are_the_device_text_of_the_tree) {
  std::set<std::string> expected, found;
  const std::filesystem::path root = std::filesystem::path(RAPT_SOURCE_DIR) / "src/kernels";
  if (std::filesystem::exists(root))
    for (const auto& file : std::filesystem::recursive_directory_iterator(root))
      if (file.path().extension() == ".cuh" || file.path().extension() == ".hpp")
        expected.insert(std::filesystem::relative(file.path(), root).string());
  for (const HeaderText& header : embedded_headers()) {
    found.emplace(header.name);
    EXPECT_EQ(header.text, contents(root / header.name)) << header.name;
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace rapt::jit
