#pragma once

// The names that FSDP1 and FSDP2 have for a sharding strategy: both are printed, because people know one or the other.
//
//   FSDP1                 mesh (replicate, shard)   reshard_after_forward
//   FULL_SHARD            (1, all)                  True
//   SHARD_GRAD_OP         (1, all)                  False
//   NO_SHARD              (all, 1)                  either: nothing is sharded
//   HYBRID_SHARD          (nodes, GPUs of a node)   True; on one node each part of it
//   _HYBRID_SHARD_ZERO2   (nodes, GPUs of a node)   False

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// FSDP1's name, as --strategy takes it: "SHARD_GRAD_OP". Where the units differ, that of units that reshard. REQUIRES:
/// FSDP2.
std::string fsdp1_name(const Plan& plan);

/// Some units below the root are resharded after forward, and others are not.
bool has_mixed_reshard(const Plan& plan);

/// `mode` of data_parallel of SimpleFSDP, which the mesh says: "fully_shard". REQUIRES: is_simple_fsdp(plan).
std::string_view simple_fsdp_mode(const Plan& plan);

/// One name for people: FSDP1's, but HYBRID_SHARD whatever happens after forward, which fsdp2_name says; "DDP", and
/// "no wrapper" where that has one GPU; "SimpleFSDP fully_shard".
std::string strategy_name(const Plan& plan);

/// "mesh (2, 8), reshard_after_forward=True"; "... True for 25 units, False for 3" where the units differ. For a plan
/// of FSDP1, the arguments.
std::string fsdp2_name(const Plan& plan);

/// The same without the mesh, shorter where the units differ: "reshard_after_forward=False for 3 of 28 units"; of a
/// plan of FSDP1 "use_orig_params=False".
std::string short_reshard(const Plan& plan);

/// Fixes shard and reshard of a space to a strategy of FSDP1. A hybrid one shards over a node as FSDP1 does, and on one
/// node over each part of it. Error: an unknown name, with the nearest one; DDP; GPUs that cannot be divided so.
Result<void> apply_strategy(std::string_view name, const Cluster& cluster, Space& space);

}  // namespace fsdp::planner
