// Parts of parameters, with the arithmetic on paper.

#include "core/plan/parameter_part.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

// 5 rows of 6 over 4 ranks: 2, 2, 1 and 0 rows.
TEST(ParameterPart, RowsAreCutWholeAndTheLastPartsPadded) {
  const Shape shape{5, 6};
  EXPECT_EQ(part_of(shape, CutBy::Rows, 4, 0), (ParameterPart{30, 12, 12, 48}));
  EXPECT_EQ(part_of(shape, CutBy::Rows, 4, 2).local, 6);
  EXPECT_EQ(part_of(shape, CutBy::Rows, 4, 3).local, 0);
  EXPECT_TRUE(part_of(shape, CutBy::Rows, 4).is_padded());
  EXPECT_FALSE(part_of(shape, CutBy::Rows, 5).is_padded());
}

// 30 elements over 4 ranks: 8, 8, 8 and 6.
TEST(ParameterPart, ElementsAreCutAnywhere) {
  const Shape shape{5, 6};
  EXPECT_EQ(part_of(shape, CutBy::Elements, 4, 3), (ParameterPart{30, 8, 6, 32}));
  EXPECT_EQ(part_of(std::int64_t{30}, CutBy::Elements, 4, 3), part_of(shape, CutBy::Elements, 4, 3));
}

TEST(ParameterPart, AWholeOneIsTheSameOnEachRank) {
  EXPECT_EQ(part_of(Shape{5, 6}, CutBy::None, 4, 3), (ParameterPart{30, 30, 30, 30}));
}

TEST(ParameterPart, AScalarHasOneRowAndAnEmptyOneNone) {
  EXPECT_EQ(part_of(Shape{}, CutBy::Rows, 2, 0), (ParameterPart{1, 1, 1, 2}));
  EXPECT_EQ(part_of(Shape{0, 6}, CutBy::Rows, 2, 0), (ParameterPart{0, 0, 0, 0}));
}

}  // namespace
}  // namespace fsdp
