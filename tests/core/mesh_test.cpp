#include "core/plan/mesh.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

namespace fsdp {
namespace {

TEST(Mesh, ShardGroupsAreContiguousAndReplicasStrided) {
  const Mesh mesh{2, 4};
  EXPECT_EQ(mesh.world_size(), 8);
  EXPECT_EQ(mesh.data_parallel_size(), 8);
  EXPECT_EQ(mesh.stride(MeshAxis::DpShard), 1);
  EXPECT_EQ(mesh.stride(MeshAxis::DpReplicate), 4);
  EXPECT_EQ(mesh.group(MeshAxis::DpShard, 6), (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group(MeshAxis::DpReplicate, 6), (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(mesh.coordinate_of(MeshAxis::DpShard, 6), 2);
  EXPECT_EQ(mesh.coordinate_of(MeshAxis::DpReplicate, 6), 1);
}

// 2 copies of 4 ranks.
TEST(RankGroup, IsThatOfAnAxisOrAPartOfIt) {
  const Mesh mesh{2, 4};
  const RankGroup shard = ranks_along(MeshAxis::DpShard);
  const RankGroup copies = ranks_along(MeshAxis::DpReplicate);
  EXPECT_EQ(mesh.size(shard), 4);
  EXPECT_EQ(mesh.stride(shard), 1);
  EXPECT_EQ(mesh.size(copies), 2);
  EXPECT_EQ(mesh.stride(copies), 4);
  const RankGroup pairs = ranks_along(MeshAxis::DpShard, 2, 2);
  EXPECT_TRUE(pairs.is_part());
  EXPECT_EQ(mesh.size(pairs), 2);
  EXPECT_EQ(mesh.stride(pairs), 2);
  EXPECT_EQ(mesh.size(RankGroup{}), 1);
}

TEST(RankGroup, OfOneRankIsEmptyUnlessItCallsAlone) {
  const Mesh mesh{1, 4};
  EXPECT_TRUE(mesh.group_along(MeshAxis::DpReplicate).empty());
  EXPECT_EQ(mesh.group_along(MeshAxis::DpReplicate, true), ranks_along(MeshAxis::DpReplicate));
  EXPECT_EQ(mesh.group_along(MeshAxis::DpShard), ranks_along(MeshAxis::DpShard));
}

// As torch.distributed.device_mesh has them: each rank is in one group of each axis, at its coordinate.
RC_GTEST_PROP(MeshOfAnySize, GroupsOfAnAxisDivideTheRanks, ()) {
  const Mesh mesh{*rc::gen::inRange<std::int64_t>(1, 9), *rc::gen::inRange<std::int64_t>(1, 9)};
  for (const MeshAxis axis : {MeshAxis::DpReplicate, MeshAxis::DpShard}) {
    std::set<std::vector<std::int64_t>> groups;
    for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
      const std::vector<std::int64_t> group = mesh.group(axis, rank);
      RC_ASSERT(group[mesh.coordinate_of(axis, rank)] == rank);
      groups.insert(group);
    }
    std::set<std::int64_t> ranks;
    for (const std::vector<std::int64_t>& group : groups) ranks.insert(group.begin(), group.end());
    RC_ASSERT(static_cast<std::int64_t>(groups.size()) * mesh.size(axis) == mesh.world_size());
    RC_ASSERT(static_cast<std::int64_t>(ranks.size()) == mesh.world_size());
  }
}

}  // namespace
}  // namespace fsdp
