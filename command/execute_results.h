#pragma once

// The results of an execution: the folder of the run, the trace, the calibration.

#include <optional>
#include <string>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "core/base/result.h"
#include "core/model/kernel_workspaces.h"
#include "core/report/calibration.h"
#include "core/report/report.h"
#include "simulator/predictor.h"
#include "text/document.h"

namespace fsdp::planner {

/// In the folder of a run: what rank 0 measured of its kernels.
std::string workspaces_file(const std::string& folder);

/// Its contents; nothing where there is no such file, as of a run without --calibration or on GPUs. Error: what is
/// wrong with the file.
Result<KernelWorkspaces> read_workspaces(const std::string& folder);

/// An execution that was predicted and measured, of one rank.
struct Executed {
  const Given& given;               ///< With the machines as the program knows them by itself.
  simulator::Predictor& predictor;  ///< The predictor of `predicted`: calibrated if a calibration is given.
  const Plan& plan;                 ///< The predicted plan.
  const StepReport& predicted;
  const StepReport& measured;
  std::int64_t rank = 0;
  const KernelWorkspaces& workspaces;             ///< Measurements of this run's kernels.
  const std::optional<Calibration>& calibration;  ///< With which it was predicted.
};

/// The calibration that --calibration names, if there is one yet. Error: what is wrong with the file.
Result<std::optional<Calibration>> read_calibration(const CommandLine& line);

/// Writes what options ask for: --run-dir (`folder`) gets the plan, its prediction and the predicted trace beside what
/// the ranks wrote; --chrome-trace the measured trace; --calibration what was learned. Error: the first that failed.
Result<void> keep_results(const CommandLine& line, const std::string& folder, const Executed& executed);

/// The measured times beside the predicted ones, where a calibration gave these, and whose it is.
void add_calibration(Document& document, const Executed& executed);

}  // namespace fsdp::planner
