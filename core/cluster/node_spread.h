#pragma once

// How far nodes of one kind differ in speed, and what the slowest of them costs a step that waits for all.

#include "core/cluster/cluster.h"

namespace fsdp {

/// Standard deviation of the time that nodes of one kind take for the same work, as a share of it: as the cluster says,
/// else that of published runs on 2 to 16 nodes.
Sourced<double> node_spread(const Cluster& cluster);

/// Extra time of the slowest of `nodes` over the mean one, in standard deviations. REQUIRES: at least one node.
double slowest_of(int nodes);

/// How many times longer than on one node computing takes where all wait for the slowest. 1 on one node.
double slowest_node(const Cluster& cluster);

}  // namespace fsdp
