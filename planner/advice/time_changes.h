#pragma once

// What would shorten the waits of a step. time_changes.cpp has the list of what is tried.

#include <optional>
#include <string>
#include <vector>

#include "planner/advice/remedies.h"
#include "planner/advice/time_account.h"

namespace fsdp::planner {

/// Waits that are told.
inline constexpr std::size_t kMostWaits = 10;

/// A change of the plan, predicted again.
struct TimeChange {
  Remedy remedy;       ///< For the whole step, and its memory.
  Seconds exposed{0};  ///< What is left of the wait.
};

struct ExplainedWait {
  Wait wait;
  std::optional<TimeChange> change;  ///< The one that shortens the step most; none: nothing that was tried helps.
};

struct TimeExplanation {
  TimeAccount account;
  std::vector<ExplainedWait> waits;  ///< At most kMostWaits, the longest first.
};

/// The account of a plan, and for each of its longest waits what takes most off the step. Changes that fit come before
/// those that do not. Errors: those of a prediction.
Result<TimeExplanation> explain_time(const RemedyRequest& request);

}  // namespace fsdp::planner
