#pragma once

// The time of a collective between nodes: NCCL's choice, with the cost of a network's hops.

#include "core/base/units.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_tuning.h"

namespace fsdp::simulator {

/// The time of one collective over several nodes, without overlap. `total` is the whole buffer, as in nccl-tests.
/// REQUIRES: a group of at least two nodes, whose tuning this is; positive total.
Seconds time_over_network(const NcclTuning& tuning, const GroupShape& shape, CollectiveKind kind, Bytes total);

}  // namespace fsdp::simulator
