#include "gui/charts/chart_text.h"

#include <gtest/gtest.h>

namespace fsdp::gui {
namespace {

TEST(PlacedLabels, NeverOverlap) {
  const std::vector<PlacedLabel> placed = place_labels({{10, 20}, {25, 20}, {60, 20}}, 0, 100, 4);
  ASSERT_EQ(placed.size(), 2u);
  EXPECT_EQ(placed[0].index, 0u);
  EXPECT_EQ(placed[0].left, 0);
  EXPECT_EQ(placed[1].index, 2u);
  EXPECT_EQ(placed[1].left, 50);
}

TEST(PlacedLabels, GiveWayToTheMoreImportantOne) {
  const std::vector<PlacedLabel> placed = place_labels({{10, 20, 0}, {25, 20, 1}}, 0, 100, 4);
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].index, 1u);
}

TEST(PlacedLabels, StayInsideOfTheChart) {
  const std::vector<PlacedLabel> placed = place_labels({{99, 20}}, 0, 100, 4);
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].left, 80);
  EXPECT_TRUE(place_labels({{50, 120}}, 0, 100, 4).empty());
}

TEST(ShortenedNames, KeepTheirEnd) {
  EXPECT_EQ(shortened_name("model.layers.27", 20), "model.layers.27");
  EXPECT_EQ(shortened_name("model.layers.27.mlp.down_proj", 16), "model….down_proj");
  EXPECT_EQ(shortened_name("abcdef", 3), "def");
}

}  // namespace
}  // namespace fsdp::gui
