#pragma once

// The phases of a job beside its steps. job_phases.cpp has what each holds.

#include <vector>

#include "core/base/result.h"
#include "core/report/job_phases.h"
#include "core/report/report.h"
#include "simulator/phases/evaluation.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// All phases of a job, in order. `memory`: the prediction of its steps; `evaluation`: may be null, and then
/// `no_evaluation` is the reason. Errors: settings that the allocator does not know.
Result<std::vector<JobPhaseNeed>> job_phases(const PreparedPlan& prepared, const MemoryReport& memory,
                                             const EvaluationForward* evaluation, const std::string& no_evaluation);

/// The host's part of the same phases, which takes no time: their `device` is empty.
std::vector<JobPhaseNeed> job_phases_on_host(const Cluster& cluster, const Plan& plan, const Model& model,
                                             const Layout& layout, Bytes inputs);

}  // namespace fsdp::simulator
