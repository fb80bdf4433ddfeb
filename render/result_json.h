#pragma once

// The result of a search, as JSON: the report of the best plan with the members `search` and `explain`.

#include <string>

#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "planner/request/machine_choice.h"
#include "planner/request/runtime_choice.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// The text of a report with its search. With `cluster`, its plan is a whole plan file.
std::string to_json(const SearchResult& result, const Cluster* cluster);

/// The same of the best of several machines, with all of them.
std::string to_json(const MachineComparison& comparison);

/// The same of the best of several frameworks, with all of them.
std::string to_json(const RuntimeComparison& comparison);

/// The text of a report of a plan that was given; `explanation` may be null.
std::string to_json(const StepReport& report, const Cluster* cluster, const Explanation* explanation = nullptr);

}  // namespace fsdp::planner
