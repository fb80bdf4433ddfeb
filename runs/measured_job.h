#pragma once

// A job that runs for real and measures itself: the settings for its processes, and their records
// (python/fsdp_measure).

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/report/report.h"
#include "runs/rehearse_record.h"

namespace fsdp::runs {

struct MeasuredJob {
  std::string python;                ///< Folder with hook/ and fsdp_measure/.
  std::string folder;                ///< For the records.
  std::vector<std::string> command;  ///< As typed.
  std::int64_t steps = 0;            ///< The job ends after these; 0 if only the script ends it.
  std::string apply;                 ///< File of a plan to apply to the script; may be empty.
  std::string apply_name;            ///< The user's name for it.
};

/// Variables to set for the command.
std::vector<std::pair<std::string, std::string>> measured_environment(const MeasuredJob& job);

/// The records of this machine's ranks, by rank; empty if nothing trained. Error: an unreadable record.
Result<std::vector<RehearsalRecord>> read_measured(const std::string& folder);

/// The report of a rank: its memory (-1 without a GPU), the collectives of one step, and the median time of a step.
StepReport report_of(const MeasuredJob& job, const RehearsalRecord& record);

}  // namespace fsdp::runs
