#pragma once

// The spread of speed among nodes of one kind, and the cost of the slowest to a step that waits for all.

#include "core/cluster/cluster.h"

namespace fsdp {

/// Standard deviation of the time that nodes of one kind take for the same work, as a share of it: the cluster's own
/// value, or that of published runs on 2 to 16 nodes.
Sourced<double> node_spread(const Cluster& cluster);

/// Extra time of the slowest of `nodes` over the mean one, in standard deviations. REQUIRES: at least one node.
double slowest_of(int nodes);

/// The factor by which computing takes longer than on one node if all wait for the slowest. 1 on one node.
double slowest_node(const Cluster& cluster);

}  // namespace fsdp
