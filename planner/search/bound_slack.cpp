// Live bytes are not quite monotonic. The plan of a family that keeps fewest units unsharded and checkpoints most
// blocks needs least, except for tensors that it makes again: recomputing a block can need more than having kept it,
// only a resharded unit is gathered into a buffer again, and an op that runs again requests its workspace again. So the
// peak of another plan lies below that plan's by no more than
//
//   the largest rise of a call's backward, plus one more copy of the units and the workspace.
//
// The peaks of pools (small tensors, large tensors) occur at different moments. A change that removes a large tensor
// may add small ones. So for each pool we count its largest rise in a call, and everything more that calls keep in it.
// A unit's parameters may be in both.
//
// Not modeled: by how much the order of gathers moves a peak. The tests hold these laws to brute force.

#include <algorithm>

#include "planner/search/lower_bounds.h"
#include "simulator/memory/device_terms.h"

namespace fsdp::planner {

using simulator::CallCost;
using simulator::PoolBytes;

std::int64_t LowerBounds::live_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways) {
  const CallSums& least = call_sums(family, true, ways);
  const CallSums& calls = call_sums(family, true, {ways.first, ways.first});
  Bytes recompute(0);
  for (std::size_t c = 0; c < calls.mode.size(); ++c) {
    const Bytes mode = calls.mode[c].backward_peak;
    if (in_checkpointed) recompute = std::max(recompute, mode - calls.none[c].backward_peak);
    recompute = std::max(recompute, mode - least.mode[c].backward_peak);
  }
  return recompute.count() + slack_of_units(family, in_kept, in_checkpointed, ways);
}

std::int64_t LowerBounds::pool_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways) {
  const CallSums& least = call_sums(family, true, ways);
  const CallSums& calls = call_sums(family, true, {ways.first, ways.first});
  std::int64_t slack = 2 * slack_of_units(family, in_kept, in_checkpointed, ways);
  for (std::int64_t PoolBytes::*pool : {&PoolBytes::small, &PoolBytes::large}) {
    std::int64_t peak = 0;
    for (std::size_t c = 0; c < calls.mode.size(); ++c) {
      const CallCost& mode = calls.mode[c];
      const CallCost& none = calls.none[c];
      std::int64_t more_kept = mode.kept_pools.*pool - least.mode[c].kept_pools.*pool;
      peak = std::max(peak, mode.peak_pools.*pool - least.mode[c].peak_pools.*pool);
      if (in_checkpointed) {
        more_kept = std::max(more_kept, mode.kept_pools.*pool - none.kept_pools.*pool);
        peak = std::max(peak, mode.peak_pools.*pool - none.peak_pools.*pool);
      }
      slack += std::max<std::int64_t>(0, more_kept);
    }
    slack += peak;
  }
  return slack;
}

std::int64_t LowerBounds::slack_of_units(const Family& family, bool in_kept, bool in_checkpointed, Interval ways) {
  const UnitSums& units = unit_sums(family);
  std::int64_t unit = 0;
  for (const std::vector<std::int64_t>& unsharded : units.unsharded) {
    for (std::size_t u = 1; u < unsharded.size(); ++u) unit = std::max(unit, unsharded[u] - unsharded[u - 1]);
  }
  // Recomputing a block gathers all units inside it, and each stays until its own backward.
  const bool has_parts = families_.wrappings[family.wrapping].parts != BlockParts::Whole;
  const int kept_units = in_kept ? 2 : 0;
  const bool in_ways = ways.size() > 1;
  const int gathered_units = has_parts && (in_checkpointed || in_ways) ? 1 : 0;
  // An op that runs again requests its workspace again, if each call returns it.
  const bool asks_again =
      (in_checkpointed || in_ways) && base_.runtime.quirks.cublas_workspaces == CublasWorkspaces::PerCall;
  const int capability = predictor_of_(family.micro_batch).cluster().gpu.compute_capability;
  const std::int64_t workspace = asks_again ? simulator::cublas_workspace(capability).count() : 0;
  // A recomputation changes which parameters ZeRO-3's coordinator gathers ahead, or keeps for the next use.
  const std::int64_t ahead = in_checkpointed || in_ways ? units.gathered_ahead : 0;
  return (kept_units + gathered_units) * unit + workspace + ahead;
}

}  // namespace fsdp::planner
