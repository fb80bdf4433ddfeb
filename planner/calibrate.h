#pragma once

// Learns from a run how fast a machine is: the factors with which a prediction takes as long as the run did.

#include <string>
#include <vector>

#include "core/calibration.h"
#include "core/cluster.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/report.h"
#include "core/result.h"

namespace fsdp::planner {

/// `cluster` has the figures of the program itself, of no earlier calibration. `predicted` is what had been predicted
/// before the run. Errors: those of a prediction.
Result<Calibration> calibrate(const Model& model, const Plan& plan, const Cluster& cluster, const TimeReport& predicted,
                              const StepReport& measured);

/// The times that both reports have: step, compute, exposed communication, optimizer.
std::vector<TimeResidual> compare_times(const TimeReport& predicted, const TimeReport& measured);

}  // namespace fsdp::planner
