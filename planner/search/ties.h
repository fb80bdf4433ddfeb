#pragma once

// Which of the plans that are as good as equally fast is named.

#include <cstdint>
#include <functional>

#include "core/plan/plan.h"
#include "planner/search/predicted_cost.h"
#include "planner/space/choice.h"

namespace fsdp::planner {

/// Step times this near count as equal. What the cost of time leaves out moves two plans of one job against each other
/// by a few percent: collectives that slow computation down, the gaps between small kernels, the run-to-run spread of a
/// step on one machine. So no prediction orders them.
inline constexpr double kTieShare = 0.02;
/// Memory this near counts as equal, too, when plans are compared by how simple they are: five in six settings of
/// docs/accuracy.md reserve within this of what is predicted.
inline constexpr double kTieMemoryShare = 0.03;

/// How far a point is from what somebody would write first: 0 is whole units with one reshard setting over all GPUs,
/// all blocks checkpointed alike, every micro-batch reduced, nothing on the host, the arguments of the base.
int complexity_of(const Families& families, const Choice& choice);

/// Where the comparison ends.
struct TieLimits {
  std::int64_t predicted = 24;  ///< Plans that are predicted in full.
  std::int64_t walked = 1200;   ///< Bounds that walk a plan's memory, these included.
};

struct NamedPoint {
  EvaluatedPoint point;
  bool is_whole = true;  ///< All that take at most kTieShare longer were compared; false: a limit ended that.
};

/// Among the points that fit the budget and take at most kTieShare longer than `fastest`: the one that needs least
/// memory, and of those within kTieMemoryShare of that one that `is_said`, in the configuration of some trainer; then
/// the simplest, then the fastest. A bounded number of plans is predicted; `fastest` is among those compared, and is
/// the answer when `should_stop` says so first. Without `is_said` none is. `timed`: what the time of a point is, `cost`
/// or what is made of it.
NamedPoint named_among_ties(PredictedCost& cost, CostModel& timed, const Families& families,
                            const EvaluatedPoint& fastest, std::int64_t budget,
                            const std::function<bool()>& should_stop, const std::function<bool(const Plan&)>& is_said,
                            const TieLimits& limits = {});

}  // namespace fsdp::planner
