#pragma once

// What a capture must meet before it is written: what it predicts of its own script, sharded, beside what was
// rehearsed.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"

namespace fsdp::planner {

/// What a capture may be off by, in bytes requested and allocated in a steady step, and in what collectives move.
inline constexpr double kCaptureTolerance = 0.005;
/// GPUs that the model is sharded over for it, where a step has one micro-batch.
inline constexpr int kCheckedGpus = 2;

struct CaptureCheck {
  std::vector<ComparedTerm> terms;   ///< Of a steady step, which is what a capture records. Empty: none was made.
  std::int64_t gpus = kCheckedGpus;  ///< That the model was sharded over.
  std::string not_made;              ///< Why there is none; empty too where nobody asked for one.
  bool has_failed = false;           ///< The script itself fails under the plan, for the reason in `not_made`.
  /// Kinds of collectives of which the script makes some by itself in a step, which no plan has: it tells its ranks how
  /// many labels there are, or gathers a metric. They move at most 1 KiB each, and less than the tolerance of what all
  /// collectives move.
  std::vector<std::string> kinds_beside;
  std::int64_t collectives_beside = 0;  ///< So many.
  Bytes bytes_beside = Bytes(0);        ///< Their payload.

  /// Whether every term that must be met is, and the script runs under a plan. Reserved bytes follow from the others by
  /// the allocator's choices, of which a few depend on what was before: they are shown.
  bool holds() const;
};

/// The terms of a comparison that say something of a capture, on these machines.
CaptureCheck checked(const Comparison& comparison, const Cluster& cluster);

}  // namespace fsdp::planner
