#include "jit/pack.hpp"

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kNumKernels = 9;

TranslationUnit unit_of(int64_t head_dim) {
  return translation_unit(key_of(head_dim), source_of());
}

class PackTest : public testing::Test {
 protected:
  PackTest() { write_pack(path_, 0); }

  // Kernels of head dims 0 to 8, added from `first` on and round.
  static void write_pack(const std::filesystem::path& path, int64_t first) {
    PackWriter writer;
    for (int64_t i = 0; i < kNumKernels; i++) {
      const TranslationUnit unit = unit_of((first + i) % kNumKernels);
      writer.add(unit, CountingCompiler::result_of(unit),
                 shared_bytes_of((first + i) % kNumKernels));
    }
    writer.write(path);
  }

  static int32_t shared_bytes_of(int64_t head_dim) { return static_cast<int32_t>(1024 * head_dim); }

  std::string refusal(std::string_view bytes) {
    put(path_, bytes);
    return error_of(ErrorCode::kIo, [&] { Pack{path_}; });
  }

  const ScratchFolder scratch_;
  const std::filesystem::path path_ = scratch_ / "core.rpk";
};

TEST_F(PackTest, every_kernel_is_found_as_it_was_added) {
  const Pack pack(path_);
  EXPECT_EQ(pack.num_kernels(), kNumKernels);
  for (int64_t i = 0; i < kNumKernels; i++) {
    CompiledKernel kernel;
    ASSERT_EQ(pack.find(unit_of(i), kernel), Pack::Answer::kFound);
    expect_right(kernel, key_of(i));
  }
  CompiledKernel kernel;
  for (int64_t i : {int64_t{-1}, kNumKernels, int64_t{100}})
    EXPECT_EQ(pack.find(unit_of(i), kernel), Pack::Answer::kAbsent);
  EXPECT_EQ(kernel.image, "");
}

TEST_F(PackTest, a_kernel_of_another_text_is_stale) {
  CompiledKernel kernel;
  const TranslationUnit newer =
      translation_unit(key_of(3), source_of("extern \"C\" GLOBAL void attend() { /*new*/ }"));
  EXPECT_EQ(Pack(path_).find(newer, kernel), Pack::Answer::kStale);
  EXPECT_EQ(kernel.image, "");
}

TEST_F(PackTest, the_list_says_what_each_kernel_takes) {
  const std::vector<PackedKernel> kernels = Pack(path_).kernels();
  ASSERT_EQ(kernels.size(), static_cast<size_t>(kNumKernels));
  for (int64_t i = 0; i < kNumKernels; i++) {
    const PackedKernel& kernel = kernels[static_cast<size_t>(i)];
    const CompiledKernel added = CountingCompiler::result_of(unit_of(i));
    EXPECT_EQ(kernel.key, concat("attend sm_90a head_dim=", i));
    EXPECT_EQ(kernel.unit_hash, unit_of(i).hash);
    EXPECT_EQ(kernel.image_bytes, added.image.size());
    EXPECT_LT(kernel.packed_bytes, added.image.size());  // it repeats itself
    EXPECT_EQ(kernel.resources, added.resources);
    EXPECT_EQ(kernel.dynamic_shared_bytes, shared_bytes_of(i));
  }
}

TEST_F(PackTest, equal_kernels_give_equal_files_in_any_order) {
  write_pack(scratch_ / "other.rpk", 5);
  EXPECT_EQ(contents(scratch_ / "other.rpk"), contents(path_));
}

// It is installed for all, unlike an entry of one's own cache.
TEST_F(PackTest, everyone_may_read_it) {
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            perms::owner_read | perms::owner_write | perms::group_read | perms::others_read);
}

TEST_F(PackTest, an_empty_pack_has_nothing) {
  PackWriter().write(path_);
  const Pack pack(path_);
  EXPECT_EQ(pack.num_kernels(), 0u);
  CompiledKernel kernel;
  EXPECT_EQ(pack.find(unit_of(1), kernel), Pack::Answer::kAbsent);
}

TEST_F(PackTest, a_key_is_added_once) {
  PackWriter writer;
  writer.add(unit_of(1), {});
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { writer.add(unit_of(1), {}); }),
            "kernel attend sm_90a head_dim=1 is in the pack already");
}

// A changed byte is seen when the pack is opened, or by the kernel whose image it is in.
TEST_F(PackTest, no_changed_byte_gives_a_wrong_kernel) {
  const std::string whole = contents(path_);
  int64_t refused = 0, damaged = 0;
  for (size_t i = 0; i < whole.size(); i++) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    put(path_, changed);
    try {
      const Pack pack(path_);
      int64_t here = 0;
      for (int64_t dim = 0; dim < kNumKernels; dim++) {
        CompiledKernel kernel;
        if (pack.find(unit_of(dim), kernel) == Pack::Answer::kFound)
          expect_right(kernel, key_of(dim));
        else
          here++;
      }
      EXPECT_EQ(here, 1) << "byte " << i;
      damaged += here;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      refused++;
    }
  }
  EXPECT_GT(refused, kNumKernels * 100);
  EXPECT_GT(damaged, kNumKernels * 20);
}

TEST_F(PackTest, every_cut_and_appendix_is_refused) {
  const std::string whole = contents(path_);
  for (size_t length = 0; length < whole.size(); length += length < 200 ? 1 : 7)
    EXPECT_THAT(refusal(whole.substr(0, length)), HasSubstr(path_.string())) << length;
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("not what its header says"));
}

TEST_F(PackTest, what_is_no_pack_of_this_version_is_refused_with_a_remedy) {
  std::string newer = contents(path_);
  newer[8] = 3;
  EXPECT_THAT(refusal(newer), AllOf(HasSubstr("has version 3, this library reads 2"),
                                    HasSubstr("make it again with `rapt pack`")));
  EXPECT_THAT(refusal("PNG"), HasSubstr("is no pack of kernels"));
  std::filesystem::remove(path_);
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { Pack{path_}; }),
              AllOf(HasSubstr("opening "), HasSubstr("No such file")));
}

}  // namespace
}  // namespace rapt::jit
