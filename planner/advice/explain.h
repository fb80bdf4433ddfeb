#pragma once

// Why this plan: what decides its peak, and which faster plans it was preferred to.

#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/advice/remedies.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// Rejected plans that are told.
inline constexpr std::size_t kMostRejected = 5;

/// One sentence: the moment, the unit and the terms that decide the device's peak.
std::string binding_of(const StepReport& report);

/// The plans that do not fit but miss least, at most kMostRejected, the nearest first. When `best` fits only
/// plans that are faster than it count.
std::vector<Candidate> nearest_rejected(std::vector<Candidate> candidates, const Candidate& best, Verdict verdict);

}  // namespace fsdp::planner
