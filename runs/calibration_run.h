#pragma once

// Measures a machine: runs plans through fsdp-exec, one after the other, until all are done or the time is over, and
// keeps what is there after each, so that a run that was ended goes on where it was.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/machine_tables.h"
#include "runs/calibration_items.h"
#include "runs/child_process.h"

namespace fsdp::planner {

struct CalibrationSettings {
  std::string program;  ///< fsdp-exec.
  std::string partial;  ///< File of what is there so far.
  std::string key;      ///< The measured items, in words: a partial file of another key is refused.
  bool on_gpus = false;
  Seconds budget{60};  ///< No run is begun after it; one that has begun ends.
  int rounds = 3;      ///< When all is done and there is time, all of it is run again, so often in all.
  std::function<void(const std::string& line)> tell;  ///< Reports the next run. May be empty.
};

struct CalibrationOutcome {
  std::vector<MachineTables> machine;  ///< By rising number of ranks.
  std::size_t done = 0;                ///< Items, those of earlier runs counted.
  std::size_t found = 0;               ///< Those among them of earlier runs.
  int interrupted_by = 0;              ///< A signal; 0: none.
};

/// Errors: a partial file that cannot be read or is of something else; a rank that failed, with its words; a file that
/// cannot be written. Earlier measurements stay in the partial file.
Result<CalibrationOutcome> run_calibration(const std::vector<CalibrationItem>& items,
                                           const CalibrationSettings& settings, Supervision& supervision);

}  // namespace fsdp::planner
