#pragma once

// The reasons for a plan: what decides its peak, and which faster plans did not fit.

#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/advice/remedies.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// The number of rejected plans that a report lists.
inline constexpr std::size_t kMostRejected = 5;

/// One sentence: the moment, the unit and the terms that decide the device's peak.
std::string binding_of(const StepReport& report);

/// At most kMostRejected of the plans that do not fit and lack least, the nearest first. If `best` fits, only plans
/// that are faster than it count.
std::vector<Candidate> nearest_rejected(std::vector<Candidate> candidates, const Candidate& best, Verdict verdict);

}  // namespace fsdp::planner
