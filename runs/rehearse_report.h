#pragma once

// Builds one report from the records of the rehearsed processes.

#include <vector>

#include "core/report/report.h"
#include "runs/rehearse_run.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// The report of the rank that needs most, with a row for each rank that ran. If a rank ran at both bounds of event
/// timing, its peaks are ranges, and the report is that of the bound that needs more. REQUIRES: at least one run, and
/// all have results.
StepReport measured_report(const RehearsalSettings& settings, const std::vector<RankRun>& runs);

/// The report of a record by itself: memory, collectives, parameters and the shape of the job. Splits the bytes
/// that a rank sends by links if all ranks share a node; otherwise they are -1.
StepReport report_of(const RehearsalRecord& record);

/// The remaining jobs: the other bound of event timing, for each rank whose figures depend on it.
std::vector<RankJob> jobs_at_other_bound(const RehearsalSettings& settings, const std::vector<RankRun>& runs);

}  // namespace fsdp::runs
