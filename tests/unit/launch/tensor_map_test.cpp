#include "launch/tensor_map.hpp"

#include <cstring>
#include <functional>

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TensorMapTest : public FakeDriverTest {
 protected:
  // [pages 100, KV heads 8, tokens 16, head_dim 128] in bf16, a box of 16 tokens by 64.
  const TensorMapShape shape_ = {.address = 0x7f0000000000,
                                 .dtype = DType::kBFloat16,
                                 .rank = 4,
                                 .sizes = {128, 16, 8, 100},
                                 .stride_bytes = {0, 256, 4096, 32768},
                                 .box = {64, 16, 1, 1},
                                 .swizzle = TensorMapSwizzle::k128Bytes};

  // The message of a map that differs from shape_ by `change`.
  std::string refused(const std::function<void(TensorMapShape&)>& change) {
    TensorMapShape shape = shape_;
    change(shape);
    calls();
    const std::string text = error_of(ErrorCode::kInvalidArgument, [&] { encode(driver_, shape); });
    EXPECT_TRUE(calls().empty()) << text;
    return text;
  }
};

TEST_F(TensorMapTest, every_field_reaches_its_argument) {
  const TensorMap map = encode(driver_, shape_);
  EXPECT_EQ(std::memcmp(&map, control_->tensor_map.data(), sizeof(map)), 0);
  EXPECT_THAT(control_->tensor_map,
              ElementsAre(9, 4, 0x7f0000000000, 128, 100, 256, 32768, 64, 1, 1, 1, 0, 3, 3, 0, 0));
}

TEST_F(TensorMapTest, types_are_the_drivers_and_fp8_is_bytes) {
  const std::pair<DType, uint64_t> expected[] = {
      {DType::kFloat32, 7}, {DType::kFloat16, 6},    {DType::kBFloat16, 9},   {DType::kUInt8, 0},
      {DType::kInt32, 3},   {DType::kFloat8E4M3, 0}, {DType::kFloat8E5M2, 0}, {DType::kInt64, 5}};
  for (const auto& [dtype, type] : expected) {
    TensorMapShape shape = shape_;
    shape.dtype = dtype;
    shape.box[0] = 16;
    encode(driver_, shape);
    EXPECT_EQ(control_->tensor_map[0], type) << to_string(dtype);
  }
}

TEST_F(TensorMapTest, what_the_unit_cannot_do_is_refused_with_its_bound) {
  using Shape = TensorMapShape;
  EXPECT_THAT(refused([](Shape& s) { s.address = 0; }), HasSubstr("address is 0"));
  EXPECT_THAT(refused([](Shape& s) { s.address += 8; }), HasSubstr("multiple of 16"));
  EXPECT_THAT(refused([](Shape& s) { s.rank = 0; }), HasSubstr("rank is 0, must be 1 to 5"));
  EXPECT_THAT(refused([](Shape& s) { s.rank = 6; }), HasSubstr("rank is 6, must be 1 to 5"));
  EXPECT_THAT(refused([](Shape& s) { s.sizes[3] = 0; }), HasSubstr("sizes[3] is 0"));
  EXPECT_THAT(refused([](Shape& s) { s.sizes[3] = (uint64_t{1} << 32) + 1; }),
              HasSubstr("sizes[3] is 4294967297, must be 1 to 4294967296"));
  EXPECT_THAT(refused([](Shape& s) { s.box[1] = 257; }), HasSubstr("box[1] is 257"));
  EXPECT_THAT(refused([](Shape& s) { s.box[2] = 0; }), HasSubstr("box[2] is 0"));
  EXPECT_THAT(refused([](Shape& s) { s.stride_bytes[2] = 4104; }),
              HasSubstr("stride_bytes[2] is 4104, must be a multiple of 16"));
  EXPECT_THAT(refused([](Shape& s) { s.stride_bytes[3] = uint64_t{1} << 40; }),
              HasSubstr("below 1099511627776"));
  EXPECT_THAT(refused([](Shape& s) { s.box[0] = 68; }), HasSubstr("box[0] has 136 bytes"));
  EXPECT_THAT(refused([](Shape& s) { s.box[0] = 72; }), HasSubstr("span of 128"));
  EXPECT_THAT(refused([](Shape& s) { s.swizzle = TensorMapSwizzle::k64Bytes; }),
              HasSubstr("span of 64"));
  EXPECT_THAT(refused([](Shape& s) { s.swizzle = TensorMapSwizzle::k32Bytes; }),
              HasSubstr("span of 32"));
}

TEST_F(TensorMapTest, the_widest_and_the_plainest_are_taken) {
  TensorMapShape shape = shape_;
  shape.sizes = {uint64_t{1} << 32, 1, 1, 1};
  shape.stride_bytes[3] = (uint64_t{1} << 40) - 16;
  shape.box = {256, 256, 256, 256};
  shape.swizzle = TensorMapSwizzle::kNone;
  EXPECT_NO_THROW(encode(driver_, shape));
  shape.rank = 1;
  EXPECT_NO_THROW(encode(driver_, shape));
}

TEST_F(TensorMapTest, failures_and_old_drivers_are_named) {
  EXPECT_THAT(error_when_fails("cuTensorMapEncodeTiled", [&] { encode(driver_, shape_); }),
              HasSubstr("cuTensorMapEncodeTiled: "));
  const Driver old(FAKE_OLD_LIBCUDA);
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { encode(old, shape_); }),
              HasSubstr("need a driver for CUDA 12.0 or later; "));
}

}  // namespace
}  // namespace rapt::cuda
