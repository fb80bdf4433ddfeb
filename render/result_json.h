#pragma once

// The result of a search as JSON: the report of the best plan with the members `search` and `explain`.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "planner/jobs/job_use.h"
#include "planner/request/length_answer.h"
#include "planner/request/machine_choice.h"
#include "planner/request/runtime_choice.h"
#include "planner/search/search.h"

namespace fsdp::render {

/// The report of the best plan with its search. With `cluster`, the plan is a complete plan file. `lengths`: of
/// --lengths; may be null. `use`: what to change in the job's files; may be null.
std::string to_json(const planner::SearchResult& result, const Cluster* cluster,
                    const planner::LengthAnswer* lengths = nullptr, const planner::JobUse* use = nullptr);

/// The same for the best machine, with all machines.
std::string to_json(const planner::MachineComparison& comparison, const planner::LengthAnswer* lengths = nullptr);

/// The same for the best framework, with all frameworks.
std::string to_json(const planner::RuntimeComparison& comparison, const planner::LengthAnswer* lengths = nullptr);

/// The report of a given plan; `explanation` and `lengths` may be null. `phases`: those of its job; may be empty.
std::string to_json(const StepReport& report, const Cluster* cluster, const planner::Explanation* explanation = nullptr,
                    const planner::LengthAnswer* lengths = nullptr, const std::vector<JobPhaseNeed>& phases = {});

}  // namespace fsdp::render
