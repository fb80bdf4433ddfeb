#pragma once

// Starts the ranks of a run on this machine, one process each, and makes sure that all of them end.

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "runs/child_process.h"

namespace fsdp::runs {

struct ExecutionSettings {
  std::vector<std::string> words;  ///< The command of a rank: fsdp-exec with a plan, or a Python with a job.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Variables to set for it.
  std::int64_t ranks = 1;
  std::vector<std::string> options;  ///< Passed on to each rank.
  Seconds grace{10};                 ///< For the other ranks after one has failed.
};

/// fsdp-exec beside this program, or the path in FSDP_PLAN_EXECUTOR. Error: how to get it.
Result<std::string> find_executor();

/// How a run of all ranks ended.
struct ExecutionOutcome {
  int interrupted_by = 0;                       ///< A signal that asked this process to end; 0 if none.
  std::vector<std::optional<ExitStatus>> ends;  ///< [ranks]
  std::int64_t first_failed = -1;               ///< The first rank with a bad end; -1 if none.
  std::string message;                          ///< Its message, or how it ended.
  std::vector<std::string> messages;            ///< All its errors, if the input was wrong.
};

/// Runs all ranks in `folder`, where each writes report-RANK.json and RANK.log. Streams rank 0's output to `words`,
/// which may be null. Error: a process cannot be started.
Result<ExecutionOutcome> execute_ranks(const ExecutionSettings& settings, const std::string& folder,
                                       std::ostream* words, Supervision& supervision);

}  // namespace fsdp::runs
