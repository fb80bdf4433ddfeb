// The slowest node.
//
// Collectives join all ranks many times a step, so each step takes as long as the slowest node. If the time of nodes of
// one kind is normal with mean t and standard deviation s t, that of the slowest of n is
//
//   t (1 + s E(n)),   E(n) = the (n - 0.375) / (n + 0.25) quantile of the standard normal:
//
//   nodes          1     2      4      8      16     64     512
//   E(n)           0     0.59   1.05   1.43   1.77   2.34   3.03
//   s = 0.035      0     2 %    4 %    5 %    6 %    8 %    11 %
//
// s was fitted to the published runs of 2 to 16 nodes (docs/accuracy.md): the same models on more nodes lose that much,
// although links are busy for a small part of a step, so that no model of the network explains it.
//
// Sources: Blom, "Statistical Estimates and Transformed Beta-Variables", 1958, for the quantile; Abramowitz and Stegun,
// 26.2.23, for its value. Sinha et al., "Not All GPUs Are Created Equal", SC 2022, measured GPUs of one kind whose
// times for the same work differ by 8 % on average in large clusters.
//
// Not modeled: differences between GPUs of one node (the shares of cards are those of nodes of 8), nodes that become
// slower over time, failures, and networks shared with others.

#include "core/cluster/node_spread.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace fsdp {

namespace {

constexpr double kPublishedSpread = .035;

// The value that a standard normal exceeds with probability p. REQUIRES: 0 < p <= 0.5. Error: at most 0.00045.
double exceeded_with(double p) {
  const double t = std::sqrt(-2 * std::log(p));
  const double above = 2.515517 + t * (0.802853 + t * 0.010328);
  return t - above / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

}  // namespace

Sourced<double> node_spread(const Cluster& cluster) {
  if (cluster.node_spread) return *cluster.node_spread;
  return {kPublishedSpread, Provenance::Measured, "fitted to 50 published runs on 2 to 16 nodes: docs/accuracy.md"};
}

double slowest_of(int nodes) {
  assert(nodes >= 1);
  return nodes == 1 ? 0 : exceeded_with(.625 / (nodes + .25));
}

double slowest_node(const Cluster& cluster) {
  return 1 + node_spread(cluster).value * slowest_of(cluster.nodes);
}

}  // namespace fsdp
