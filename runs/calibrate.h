#pragma once

// Learns from a run how fast a machine is: the factors with which a prediction takes as long as the run did.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/report/calibration.h"
#include "core/report/report.h"

namespace fsdp::planner {

/// `cluster` has the figures of the program itself, of no earlier calibration. `predicted` is what had been predicted
/// before the run. Errors: those of a prediction.
Result<Calibration> calibrate(const Model& model, const Plan& plan, const Cluster& cluster, const TimeReport& predicted,
                              const StepReport& measured);

/// The times that both reports have: step, compute, exposed communication, optimizer.
std::vector<TimeResidual> compare_times(const TimeReport& predicted, const TimeReport& measured);

}  // namespace fsdp::planner
