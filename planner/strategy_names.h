#pragma once

// The names that FSDP1 and FSDP2 have for a sharding strategy: both are printed, because people know one or the other.
//
//   FSDP1                 mesh (replicate, shard)   reshard_after_forward
//   FULL_SHARD            (1, all)                  True
//   SHARD_GRAD_OP         (1, all)                  False
//   NO_SHARD              (all, 1)                  either: nothing is sharded
//   HYBRID_SHARD          (nodes, GPUs of a node)   True
//   _HYBRID_SHARD_ZERO2   (nodes, GPUs of a node)   False

#include <string>
#include <string_view>

#include "core/cluster.h"
#include "core/plan.h"
#include "core/result.h"
#include "planner/space.h"

namespace fsdp::planner {

/// "FULL_SHARD"; "FULL_SHARD, 3 units as SHARD_GRAD_OP" where the units differ.
std::string fsdp1_name(const Plan& plan);

/// "mesh (2, 8), reshard_after_forward=True"; "... True for 25 units, False for 3" where the units differ.
std::string fsdp2_name(const Plan& plan);

/// Fixes shard and reshard of a space to a strategy of FSDP1. Error: an unknown name, with the nearest one; a hybrid
/// strategy on one node.
Result<void> apply_strategy(std::string_view name, const Cluster& cluster, Space& space);

}  // namespace fsdp::planner
