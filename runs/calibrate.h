#pragma once

// Learns the speed of a machine from a run: the factors that make a prediction take as long as the run did.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/report/calibration.h"
#include "core/report/report.h"

namespace fsdp::runs {

/// `cluster` has the figures before any calibration. `predicted`: the prediction before the run.
/// Errors: those of a prediction.
Result<Calibration> calibrate(const Model& model, const Plan& plan, const Cluster& cluster, const TimeReport& predicted,
                              const StepReport& measured);

/// The times that both reports have: step, compute, exposed communication, optimizer.
std::vector<TimeResidual> compare_times(const TimeReport& predicted, const TimeReport& measured);

}  // namespace fsdp::runs
