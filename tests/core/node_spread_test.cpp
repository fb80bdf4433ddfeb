#include "core/cluster/node_spread.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

// Expected largest of normal values: 0.564, 1.030, 1.424, 1.766, 2.344 and 2.827 of 2, 4, 8, 16, 64 and 256.
TEST(NodeSpread, SlowestNodeFollowsOrderStatistics) {
  EXPECT_EQ(slowest_of(1), 0);
  EXPECT_NEAR(slowest_of(2), .564, .03);
  EXPECT_NEAR(slowest_of(4), 1.030, .03);
  EXPECT_NEAR(slowest_of(8), 1.424, .03);
  EXPECT_NEAR(slowest_of(16), 1.766, .02);
  EXPECT_NEAR(slowest_of(64), 2.344, .02);
  EXPECT_NEAR(slowest_of(256), 2.827, .02);
}

TEST(NodeSpread, OneNodeLosesNothingAndSixteenLoseSixPercent) {
  Cluster cluster;
  EXPECT_EQ(slowest_node(cluster), 1);
  cluster.nodes = 16;
  EXPECT_NEAR(slowest_node(cluster), 1.062, .001);
  cluster.node_spread = {.1, Provenance::Given, "test"};
  EXPECT_NEAR(slowest_node(cluster), 1.177, .002);
  cluster.node_spread->value = 0;
  EXPECT_EQ(slowest_node(cluster), 1);
}

TEST(NodeSpread, UserSetsItAndAFileStoresIt) {
  const auto given = override_cluster({}, {.nodes = 4, .node_spread = .02});
  ASSERT_TRUE(given);
  EXPECT_EQ(node_spread(*given), (Sourced<double>{.02, Provenance::Given, "--node-spread"}));
  const auto wrong = override_cluster({}, {.node_spread = 3.5});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().front().where, "--node-spread");
}

}  // namespace
}  // namespace fsdp
