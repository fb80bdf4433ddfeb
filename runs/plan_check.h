#pragma once

// A plan's prediction beside its run: the terms that must agree, by how much, and the others.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"
#include "runs/given_plan.h"

namespace fsdp::planner {

/// The allowed error of a prediction, in bytes requested and allocated in a steady step and in numbers of parameters.
/// Collectives are equal in number and in payload.
inline constexpr double kPlanTolerance = 0.005;
/// GPUs that a captured model is sharded over for its check, where a step has one micro-batch.
inline constexpr int kCheckedGpus = 2;

struct PlanCheck {
  std::vector<ComparedTerm> terms;  ///< Worst first: what is looked at. Empty: no check was made.
  /// The `terms`, worst first, that differ by more than they may. Collectives come before memory: where they
  /// differ, another thing was run than was planned.
  std::vector<ComparedTerm> beyond;
  std::int64_t gpus = kCheckedGpus;  ///< That the model was sharded over.
  std::string not_made;              ///< Why there is none; empty too where nobody asked for one.
  bool has_failed = false;           ///< The script itself fails under the plan, for the reason in `not_made`.
  /// Kinds of collectives of which the script makes some by itself in a step, which no plan has: it tells its ranks how
  /// many labels there are, or gathers a metric. They move at most 1 KiB each, and less than 0.5 % of what all
  /// collectives move, or are as many as it was seen to make when it was captured.
  std::vector<std::string> kinds_beside;
  std::int64_t collectives_beside = 0;  ///< So many.
  Bytes bytes_beside = Bytes(0);        ///< Their payload.

  /// Whether every term that must be met is, and the script runs under a plan.
  bool holds() const { return !has_failed && beyond.empty(); }
};

/// Holds a run of a plan on these machines against its prediction. Without a `tolerance` it looks at the steady step,
/// where reserved bytes and the device's are shown and may differ: they follow from the others by choices of the
/// allocator, of which a few depend on what was before. With one, every term has to be within it; collectives are equal
/// in either case. `own`: kinds of the collectives that the script makes by itself in a step.
PlanCheck checked(const Comparison& comparison, const Cluster& cluster, std::optional<double> tolerance = std::nullopt,
                  const std::vector<std::string>& own = {});

/// The argument `own` of `checked`: collectives of all micro-batches of a step if the plan has a captured model.
std::vector<std::string> own_collectives(const Given& given);

}  // namespace fsdp::planner
