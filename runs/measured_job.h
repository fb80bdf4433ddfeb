#pragma once

// A job that runs for real and measures itself: what its processes are told, and what they wrote
// (python/fsdp_measure).

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/report/report.h"
#include "runs/rehearse_record.h"

namespace fsdp::planner {

struct MeasuredJob {
  std::string python;                ///< Folder with hook/ and fsdp_measure/.
  std::string folder;                ///< For the records.
  std::vector<std::string> command;  ///< As typed.
  std::int64_t steps = 0;            ///< After which it ends; 0: when the script does.
  std::string apply;                 ///< File of a plan to put into the script; empty: none.
  std::string apply_name;            ///< The user's name for it.
};

/// Variables to set for the command.
std::vector<std::pair<std::string, std::string>> measured_environment(const MeasuredJob& job);

/// The records of this machine's ranks, by rank; none where nothing trained. Error: a record that cannot be read.
Result<std::vector<RehearsalRecord>> read_measured(const std::string& folder);

/// The report of a rank: memory where it has a GPU, -1 elsewhere; the collectives of one step, and the median time of a
/// step.
StepReport report_of(const MeasuredJob& job, const RehearsalRecord& record);

}  // namespace fsdp::planner
