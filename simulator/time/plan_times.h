#pragma once

// Durations of the collectives and copies of a plan's units, and of the optimizer.

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/ops/muon_step.h"
#include "simulator/time/roofline.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

/// The process groups of a mesh on a cluster.
struct MeshCosts {
  Mesh mesh;
  CollectiveCost shard;
  CollectiveCost replicate;
  BytesPerSecond host_link;  ///< Bandwidth of one GPU to its host.
  BytesPerSecond drive;      ///< Its share of its node's NVMe drives.
  /// Cost of the ranks of a shard group inside one node, the most common integer of reshard_after_forward. A search
  /// prices thousands of plans on a mesh, and building this cost takes as long as a step time.
  CollectiveCost node;
  /// Under expert parallelism: of the ranks that share the experts of a layer, and of those that hold the same ones.
  CollectiveCost experts = {};
  CollectiveCost expert_shard = {};

  /// The cost of all ranks along one axis, also of one alone, or of those of experts. REQUIRES: no other part of them.
  const CollectiveCost& along(const RankGroup& ranks) const {
    if (ranks.is_part()) return ranks.distance == 1 ? experts : expert_shard;
    return ranks.is_along(MeshAxis::DpReplicate) ? replicate : shard;
  }
  /// The cost of the ranks that share a unit.
  const CollectiveCost& of(const ShardedUnit& unit) const { return unit.of_experts ? expert_shard : shard; }
};

MeshCosts mesh_costs(const Cluster& cluster, const Mesh& mesh);

/// [num units] With `Layout::loss` one more: its unit, with what the loss reduces.
std::vector<UnitTimes> unit_times(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const Cluster& cluster,
                                  const ComputeCosts& costs);
/// The one of them that a reduction takes.
std::size_t index_of_times(const Layout& layout, const Instruction& step);

/// [buckets] Of some buckets of the layout.
std::vector<BucketTimes> bucket_times(const std::vector<GradientBucket>& buckets, const Model& model,
                                      const Layout& layout, const Plan& plan, const MeshCosts& mesh,
                                      const Cluster& cluster, const ComputeCosts& costs);

/// Bytes of a rank's shards of a unit. Frozen parameters may have another dtype than trained ones.
Bytes shard_bytes(const Layout& layout, const ShardedUnit& unit);

/// The GPUs of one node, empty if it has one, and those of the same place in each node. REQUIRES: several nodes of all
/// their GPUs.
RankGroup ranks_of_node(const Cluster& cluster);
RankGroup ranks_across_nodes(const Cluster& cluster, std::int64_t ranks);

/// [groups of the schedule] For ZeRO-3 alone.
std::vector<FetchTimes> fetch_times(const Model& model, const Layout& layout, const Plan& plan,
                                    const Schedule& schedule, const MeshCosts& mesh, const Cluster& cluster,
                                    const ComputeCosts& costs);

/// The broadcast of a model's buffers, and the copies around it; 0 if it has none.
Seconds sync_buffers_time(const Model& model, const MeshCosts& mesh, const ComputeCosts& costs);

/// For ZeRO alone.
ZeroTimes zero_times(const Model& model, const Layout& layout, const Plan& plan, const MeshCosts& mesh,
                     const ComputeCosts& costs);

/// [num instructions] Work of the computing thread of a measured CPU in each instruction beside ops, the optimizer and
/// clipping, which have their own. REQUIRES: costs.on_host.
std::vector<Seconds> host_times(const Schedule& schedule, const Model& model, const Layout& layout, const Plan& plan,
                                const ComputeCosts& costs);

/// The optimizer's own time, and that of gradient clipping.
Seconds optimizer_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs);

/// Muon's extra time: its products and their waits. The momentum is in `optimizer_time`.
Seconds muon_time(const MuonStep& step, const MeshCosts& mesh, const ComputeCosts& costs);

/// The ranks to which Muon sends: those along one dimension of its mesh, which has them as `mesh` does.
RankGroup ranks_of(const MuonEvent& event, const TensorMesh& of, const Mesh& mesh);
/// Time of what it sends.
Seconds muon_collective_time(const MuonEvent& event, const TensorMesh& of, const MeshCosts& mesh);
Seconds clip_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs);

}  // namespace fsdp::simulator
