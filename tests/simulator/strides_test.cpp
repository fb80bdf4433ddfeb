#include "simulator/ops/strides.h"

#include <gtest/gtest.h>

namespace fsdp::simulator {
namespace {

TEST(Strides, ViewExistsIfNeighborsAreContiguous) {
  EXPECT_EQ(strides_as({2, 3, 4}, dense_strides({2, 3, 4}), {6, 4}), (Shape{4, 1}));
  // [2, 3, 4] with its last two dimensions in each other's place: rows and columns are no piece.
  EXPECT_EQ(strides_as({2, 4, 3}, {12, 1, 4}, {2, 12}), std::nullopt);
  EXPECT_EQ(strides_as({2, 4, 3}, {12, 1, 4}, {1, 2, 4, 3}), (Shape{24, 12, 1, 4}));
}

TEST(Strides, ResultHasTheOrderOfItsFirstOperandWithoutGaps) {
  EXPECT_EQ(strides_of_result({2, 3, 4}, {12, 4, 1}), (Shape{12, 4, 1}));
  // Channel by channel, cut out of a wider tensor: the gap goes, the order stays.
  EXPECT_EQ(strides_of_result({2, 3, 4}, {100, 1, 5}), (Shape{12, 1, 3}));
}

TEST(Strides, RepeatedDimensionKeepsItsPlace) {
  // T5's bias: heads last in memory, one for the whole batch.
  EXPECT_EQ(strides_of_result({2, 4, 8, 8}, {0, 1, 32, 4}), (Shape{256, 1, 32, 4}));
}

TEST(Strides, DimensionsOfOneElementHaveNoOrder) {
  EXPECT_TRUE(is_dense({1, 5, 3}, {7, 3, 1}));
  EXPECT_FALSE(is_dense({2, 5, 3}, {15, 1, 5}));
}

}  // namespace
}  // namespace fsdp::simulator
