// Page sizes: what is said to be read is read, and nothing else (public report K22: the documented
// rule refused valid sizes and let invalid ones through).
#include "select/page_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support.hpp"

namespace rapt {
namespace {

constexpr std::array<int32_t, 3> kSmall{16, 32, 64};
constexpr std::array<int32_t, 2> kLarge{64, 128};

int32_t kernel_page(const char* device, const char* backend, int32_t page_size) {
  AttentionSpec spec = make_spec();
  spec.page_size = page_size;
  const DeviceInfo info = device_info(device);
  const SelectOptions options{.backend = backend};
  try {
    return select({spec, info, options}, all_built).page_size;
  } catch (const Error&) {
    return 0;
  }
}

TEST(PageSize, each_of_1_to_1024_is_taken_by_the_rule) {
  for (int32_t page = 1; page <= 1024; page++) {
    EXPECT_EQ(kernel_page("cpu", "cpu", page), page);
    EXPECT_EQ(kernel_page("cpu", "reference", page), page);
    EXPECT_EQ(kernel_page("h100", "flash_attention", page), page);
    const int32_t listed = page % 64 == 0 ? 64 : page % 32 == 0 ? 32 : page % 16 == 0 ? 16 : 0;
    EXPECT_EQ(kernel_page("h100", "flashinfer", page), listed);
  }
}

TEST(PageSize, head_dim_256_of_flash_attention_4_reads_multiples_of_128) {
  AttentionSpec spec = make_spec(256);
  const DeviceInfo b200 = device_info("b200");
  const SelectOptions options{.backend = "flash_attention"};
  for (int32_t page = 16; page <= 1024; page += 16) {
    spec.page_size = page;
    EXPECT_EQ(select({spec, b200, options}, all_built).version, page % 128 == 0 ? 4 : 2) << page;
  }
}

TEST(PageSize, common_size_is_the_managers_own_where_all_read_it) {
  EXPECT_EQ(
      common_page_size(std::array{PageSizes{.multiple_of = 16}, PageSizes{.multiple_of = 8}}, 48),
      48);
  EXPECT_EQ(
      common_page_size(std::array{PageSizes{.multiple_of = 16}, PageSizes{.listed = kSmall}}, 32),
      32);
}

TEST(PageSize, common_size_is_otherwise_the_largest_listed_divisor) {
  const std::array layers{PageSizes{.multiple_of = 16}, PageSizes{.listed = kSmall}};
  EXPECT_EQ(common_page_size(layers, 256), 64);
  EXPECT_EQ(common_page_size(layers, 96), 32);
  EXPECT_EQ(common_page_size(layers, 48), 16);
  EXPECT_EQ(
      common_page_size(std::array{PageSizes{.listed = kSmall}, PageSizes{.listed = kLarge}}, 256),
      64);
}

TEST(PageSize, no_common_size_is_refused_with_all_rules) {
  const std::array layers{PageSizes{.multiple_of = 128}, PageSizes{.listed = kSmall}};
  try {
    common_page_size(layers, 256);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("manager_page_size is 256"));
    EXPECT_THAT(error.what(), testing::HasSubstr("a multiple of 128"));
    EXPECT_THAT(error.what(), testing::HasSubstr("16, 32 or 64"));
  }
  EXPECT_THROW(common_page_size(layers, 0), Error);
}

TEST(PageSize, common_size_agrees_with_trying_every_divisor) {
  const std::array rules{PageSizes{.multiple_of = 1}, PageSizes{.multiple_of = 16},
                         PageSizes{.multiple_of = 24}, PageSizes{.listed = kSmall},
                         PageSizes{.listed = kLarge}};
  for (const PageSizes& a : rules)
    for (const PageSizes& b : rules)
      for (int32_t manager = 1; manager <= 400; manager++) {
        int32_t largest = 0;
        for (int32_t size = 1; size <= manager; size++)
          if (manager % size == 0 && a.contains(size) && b.contains(size)) largest = size;
        EXPECT_EQ(find_common_page_size(std::array{a, b}, manager).value_or(0), largest)
            << to_string(a) << " and " << to_string(b) << " of " << manager;
      }
}

TEST(PageSize, a_selection_names_the_sizes_its_layer_can_share) {
  const DeviceInfo h100 = device_info("h100");
  const AttentionSpec spec = make_spec();
  const Selection flash = select({spec, h100, {}}, all_built);
  const SelectOptions named{.backend = "flashinfer"};
  const Selection flashinfer = select({spec, h100, named}, all_built);
  EXPECT_EQ(common_page_size(std::array{flash.page_sizes, flashinfer.page_sizes}, 256), 64);
}

}  // namespace
}  // namespace rapt
