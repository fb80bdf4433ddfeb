#pragma once

// --phases: what a job does beside its steps.

#include <vector>

#include "command/cli.h"
#include "command/cli_options.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/report/job_phases.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::command {

/// Errors of --phases and --eval-batch that no plan is needed for.
Errors check_phases(const CommandLine& line);

/// The phases of a predicted plan; empty without --phases. Errors: an evaluation's batch that the model cannot have.
Result<std::vector<JobPhaseNeed>> phases_of(const CommandLine& line, const ModelSpec& spec, Workload workload,
                                            const Cluster& cluster, const StepReport& report);

/// Adds the phases of the best plan's job, if they are requested. Errors: those of phases_of.
Errors add_phases(const CommandLine& line, const planner::ResolvedRequest& request, planner::SearchResult& result);

/// The exit code of an answer whose job has these phases: `code`, or that of a plan that does not fit.
ExitCode with_phases(ExitCode code, const std::vector<JobPhaseNeed>& phases);

}  // namespace fsdp::command
