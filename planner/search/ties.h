#pragma once

// Chooses the plan to name among those that count as equally fast.

#include <cstdint>
#include <functional>

#include "core/plan/plan.h"
#include "planner/search/predicted_cost.h"
#include "planner/space/families.h"

namespace fsdp::planner {

/// Step times this near count as equal. Effects that the cost of time omits change the times of two plans of one job by
/// a few percent: collectives that slow compute down, the gaps between small kernels, the run-to-run spread of a step
/// on one machine. So no prediction orders them.
inline constexpr double kTieShare = 0.02;
/// Memory this near counts as equal, too, if plans are compared by how simple they are: five in six settings of
/// docs/accuracy.md reserve within this of the prediction.
inline constexpr double kTieMemoryShare = 0.03;

/// How far a point is from the plan that a user would write first. 0 is whole units with one reshard setting over all
/// GPUs, all blocks checkpointed alike, every micro-batch reduced, nothing on the host, the arguments of the base.
int complexity_of(const Families& families, const PlanPoint& plan_point);

/// Limits of the comparison.
struct TieLimits {
  std::int64_t predicted = 24;  ///< Fully predicted plans.
  std::int64_t walked = 1200;   ///< Bounds that walk a plan's memory, including those.
};

struct NamedPoint {
  EvaluatedPoint point;
  bool is_whole = true;  ///< True if all plans that take at most kTieShare longer were compared. False at a limit.
};

/// Names one of the points that fit the budget and take at most kTieShare longer than `fastest`. First the one that
/// needs least memory; of those within kTieMemoryShare of it, those for which `is_said`, because some trainer's
/// configuration can express them; then the simplest; then the fastest. Predicts a limited number of plans, including
/// `fastest`, which is the answer if `should_stop` returns true first. Without `is_said`, that criterion is skipped.
/// `timed`: the cost model of a point's time, `cost` or one derived from it.
NamedPoint named_among_ties(PredictedCost& cost, CostModel& timed, const Families& families,
                            const EvaluatedPoint& fastest, std::int64_t budget,
                            const std::function<bool()>& should_stop, const std::function<bool(const Plan&)>& is_said,
                            const TieLimits& limits = {});

}  // namespace fsdp::planner
