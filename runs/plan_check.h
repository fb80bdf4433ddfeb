#pragma once

// A plan's prediction beside its run: the terms that must agree, their tolerances, and the others.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"
#include "runs/given_plan.h"

namespace fsdp::runs {

/// The relative tolerance of bytes requested and allocated in a steady step, and of numbers of parameters.
/// Collectives must be equal in number and in payload.
inline constexpr double kPlanTolerance = 0.005;
/// GPUs that shard a captured model for its check, if a step has one micro-batch.
inline constexpr int kCheckedGpus = 2;

struct PlanCheck {
  std::vector<ComparedTerm> terms;  ///< The checked terms, worst first. Empty if no check was made.
  /// The `terms` that differ by more than their limits, worst first. Collectives come before memory: if they
  /// differ, the run executed something other than the plan.
  std::vector<ComparedTerm> beyond;
  std::int64_t gpus = kCheckedGpus;  ///< GPUs that sharded the model.
  std::string not_made;              ///< Why there is no check; empty too if nobody requested one.
  bool has_failed = false;           ///< The script itself fails under the plan, with the reason in `not_made`.
  /// Kinds of collectives that the script itself makes in a step and no plan has, for example to share the number
  /// of labels or to gather a metric. They move at most 1 KiB each and less than 0.5 % of the bytes of all collectives,
  /// or are as many as the capture saw.
  std::vector<std::string> kinds_beside;
  std::int64_t collectives_beside = 0;  ///< Their number.
  Bytes bytes_beside = Bytes(0);        ///< Their payload.

  /// Whether every required term is met and the script runs under a plan.
  bool holds() const { return !has_failed && beyond.empty(); }
};

/// Compares a run of a plan on these machines with its prediction. Without `tolerance` it checks the steady step;
/// reserved bytes and the device's bytes are shown but may differ, because they follow from the others by choices of
/// the allocator, a few of which depend on history. With `tolerance`, every term has to be within it. Collectives must
/// be equal in either case. `own`: kinds of collectives that the script itself makes in a step.
PlanCheck checked(const Comparison& comparison, const Cluster& cluster, std::optional<double> tolerance = std::nullopt,
                  const std::vector<std::string>& own = {});

/// The argument `own` of `checked`: collectives of all micro-batches of a step, if the plan has a captured model.
std::vector<std::string> own_collectives(const Given& given);

}  // namespace fsdp::runs
