#pragma once

// Changes that would shorten the waits of a step. time_changes.cpp lists them.

#include <optional>
#include <string>
#include <vector>

#include "planner/advice/remedies.h"
#include "planner/advice/time_account.h"

namespace fsdp::planner {

/// The number of waits in a report.
inline constexpr std::size_t kMostWaits = 10;

/// A change of the plan, predicted again.
struct TimeChange {
  Remedy remedy;       ///< For the whole step, and its memory.
  Seconds exposed{0};  ///< The remaining wait.
};

struct ExplainedWait {
  Wait wait;
  std::optional<TimeChange> change;  ///< The change that shortens the step most. nullopt if none helps.
};

struct TimeExplanation {
  TimeAccount account;
  std::vector<ExplainedWait> waits;  ///< At most kMostWaits, the longest first.
};

/// The account of a plan, and the change that shortens the step most for each of its longest waits. Changes that fit
/// come before those that do not. Errors: those of a prediction.
Result<TimeExplanation> explain_time(const RemedyRequest& request);

}  // namespace fsdp::planner
