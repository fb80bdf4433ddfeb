#pragma once

// From what the rehearsed processes wrote to one report.

#include <vector>

#include "core/report/report.h"
#include "runs/rehearse_run.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// The report of the rank that needs most, with a row for each rank that was run. Where a rank was run at both bounds
/// of event timing its peaks are ranges, and the report is that of the bound that needs more. REQUIRES: at least one
/// run, and all have results.
StepReport measured_report(const RehearsalSettings& settings, const std::vector<RankRun>& runs);

/// The report of a record by itself: memory, collectives, parameters and the shape of the job. The bytes that a rank
/// sends are split by links only where all ranks share a node, else -1.
StepReport report_of(const RehearsalRecord& record);

/// Jobs still to be run: the other bound of event timing, for each rank whose figures depend on it.
std::vector<RankJob> jobs_at_other_bound(const RehearsalSettings& settings, const std::vector<RankRun>& runs);

}  // namespace fsdp::planner
