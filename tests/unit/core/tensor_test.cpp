// Views and how they describe themselves.
#include "rapt/tensor.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "core/strides.hpp"
#include "rapt/error.hpp"

namespace rapt {
namespace {

TEST(TensorView, contiguous_is_row_major) {
  const TensorView view = TensorView::contiguous(nullptr, DType::kInt32, {3, 4, 5});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.stride[0], 20);
  EXPECT_EQ(view.stride[1], 5);
  EXPECT_EQ(view.stride[2], 1);
  EXPECT_EQ(view.describe(), "int32[3, 4, 5]");
}

TEST(TensorView, strides_are_shown_where_they_are_not_row_major) {
  EXPECT_EQ(TensorView::strided(nullptr, DType::kBFloat16, {3, 4}, {1, 3}).describe(),
            "bfloat16[3, 4] strides [1, 3]");
  EXPECT_EQ(TensorView::strided(nullptr, DType::kFloat32, {1, 4}, {-77, 1}).describe(),
            "float32[1, 4]")
      << "the stride of a size-1 axis means nothing";
}

TEST(TensorView, strides_of_size_one_axes_are_never_used) {
  const TensorView view = TensorView::strided(nullptr, DType::kFloat32, {1, 4}, {-77, 9});
  EXPECT_EQ(stride_of(view, 0), 0);
  EXPECT_EQ(stride_of(view, 1), 9);
}

TEST(TensorView, refuses_what_it_cannot_hold) {
  EXPECT_THROW(TensorView::contiguous(nullptr, DType::kInt32, {1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(TensorView::strided(nullptr, DType::kInt32, {1, 1}, {1}), Error);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THROW(TensorView::contiguous(nullptr, DType::kInt32, {huge, huge, huge}), Error);
}

TEST(TensorView, any_view_can_be_described) {  // an error message must not be the second error
  TensorView view = TensorView::contiguous(nullptr, DType::kInt32, {2});
  view.rank = 1000;
  view.shape.fill(std::numeric_limits<int64_t>::max());
  view.stride.fill(std::numeric_limits<int64_t>::min());
  view.dtype = static_cast<DType>(200);
  EXPECT_EQ(view.describe().substr(0, 8), "unknown[");
}

}  // namespace
}  // namespace rapt
