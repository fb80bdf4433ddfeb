#pragma once

// The measurements of a run as a report, to compare with the prediction of the same plan.

#include <vector>

#include "core/model/model_index.h"
#include "core/report/report.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// The facts of a run that are not in its steps.
struct RunFacts {
  std::string device = "CPU";
  std::int64_t warm_up = 1;  ///< Steps at the start whose times do not count.
};

/// The first step and the last; times are medians over the steps after the warm-up. The collectives of steps between
/// them are not read. REQUIRES: at least one step.
StepReport measured_report(const ModelIndex& index, const Plan& plan, const Layout& layout,
                           const std::vector<StepMeasurement>& steps, const RunFacts& facts);

}  // namespace fsdp::executor
