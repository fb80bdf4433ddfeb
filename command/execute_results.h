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

namespace fsdp::command {

/// The path of rank 0's kernel measurements in the folder of a run.
std::string workspaces_file(const std::string& folder);

/// Its contents; empty if the file does not exist, as after a run without --calibration or on GPUs. Error: faults
/// of the file.
Result<KernelWorkspaces> read_workspaces(const std::string& folder);

/// One rank of an execution, predicted and measured.
struct Executed {
  const runs::Given& given;         ///< With the machines before calibration.
  simulator::Predictor& predictor;  ///< The predictor of `predicted`: calibrated if a calibration is given.
  const Plan& plan;                 ///< The predicted plan.
  const StepReport& predicted;
  const StepReport& measured;
  std::int64_t rank = 0;
  const KernelWorkspaces& workspaces;             ///< Measurements of this run's kernels.
  const std::optional<Calibration>& calibration;  ///< The calibration of the prediction.
};

/// The calibration that --calibration names; `nullopt` if there is none yet. Error: faults of the file.
Result<std::optional<Calibration>> read_calibration(const CommandLine& line);

/// Writes the requested files: --run-dir (`folder`) gets the plan, its prediction and the predicted trace beside
/// the ranks' files; --chrome-trace the measured trace; --calibration the learned factors. Error: the first failure.
Result<void> keep_results(const CommandLine& line, const std::string& folder, const Executed& executed);

/// The measured times beside the predicted ones if a calibration was used, and the origin of that calibration.
void add_calibration(text::Document& document, const Executed& executed);

}  // namespace fsdp::command
