#pragma once

// FSDP1's and FSDP2's names of a sharding strategy. We print both, because people know one or the other.
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

/// FSDP1's name, as --strategy takes it: "SHARD_GRAD_OP". If the units differ, that of the units that reshard.
/// REQUIRES: FSDP2.
std::string fsdp1_name(const Plan& plan);

/// True if some units below the root are resharded after forward, and others are not.
bool has_mixed_reshard(const Plan& plan);

/// The `mode` argument of SimpleFSDP's data_parallel, derived from the mesh: "fully_shard".
std::string_view mode_of_mesh(const Mesh& mesh);

/// One name for people: FSDP1's, but HYBRID_SHARD for any setting after forward, which fsdp2_name gives; "DDP", or "no
/// wrapper" for DDP on one GPU; "SimpleFSDP fully_shard".
std::string strategy_name(const Plan& plan);

/// "mesh (2, 8), reshard_after_forward=True"; "... True for 25 units, False for 3" if the units differ. For a plan of
/// FSDP1, its arguments.
std::string fsdp2_name(const Plan& plan);

/// The same without the mesh, shorter if the units differ: "reshard_after_forward=False for 3 of 28 units". For a plan
/// of FSDP1 "use_orig_params=False".
std::string short_reshard(const Plan& plan);

/// Fixes shard and reshard of a space to a strategy of FSDP1. A hybrid one shards over a node as FSDP1 does, and on one
/// node over each part of it. Errors: an unknown name, with the nearest one; DDP; a number of GPUs that the strategy
/// cannot divide.
Result<void> apply_strategy(std::string_view name, const Cluster& cluster, Space& space);

}  // namespace fsdp::planner
