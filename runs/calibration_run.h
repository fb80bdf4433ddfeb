#pragma once

// Measures a machine: runs plans through fsdp-exec, one after the other, until all are done or the time is over.
// Saves the results after each, so that an interrupted calibration continues.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/machine_tables.h"
#include "runs/calibration_items.h"
#include "runs/child_process.h"

namespace fsdp::runs {

struct CalibrationSettings {
  std::string program;  ///< fsdp-exec.
  std::string partial;  ///< File of the results so far.
  std::string key;      ///< The measured items, in words. A partial file with another key is refused.
  bool on_gpus = false;
  Seconds budget{60};                                 ///< No run starts after it; a running one ends.
  int rounds = 3;                                     ///< All items run this often if there is time.
  std::function<void(const std::string& line)> tell;  ///< Reports the next run. May be empty.
};

struct CalibrationOutcome {
  std::vector<MachineTables> machine;  ///< Ascending by number of ranks.
  std::size_t done = 0;                ///< Items, including those of earlier calls.
  std::size_t found = 0;               ///< Items of earlier calls.
  int interrupted_by = 0;              ///< A signal; 0 if none.
};

/// Errors: an unreadable partial file or one with another key; a failed rank, with its message; a file that cannot
/// be written. Earlier measurements stay in the partial file.
Result<CalibrationOutcome> run_calibration(const std::vector<CalibrationItem>& items,
                                           const CalibrationSettings& settings, Supervision& supervision);

}  // namespace fsdp::runs
