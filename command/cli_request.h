#pragma once

// The options of a command line as choices of a plan.

#include <cstdint>
#include <string>
#include <vector>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "planner/space/space.h"

namespace fsdp::command {

/// The plan options as choices, without a model. `is_wanted` selects some of them. A choice whose text has errors
/// is not made: it is on the list `unread`, and its errors are added to `errors`.
planner::PlanRequest read_choices(const CommandLine& line, Errors& errors,
                                  bool (*is_wanted)(planner::PlanChoice) = nullptr);

/// Errors: all faults of the options and of the files that they name, in one go.
Result<planner::ResolvedRequest> read_request(const CommandLine& line, const std::string& library);

/// The machines of a command line. Errors: unreadable options, and those of resolve_machines.
Result<Cluster> read_machines(const CommandLine& line, const std::string& library);

/// The work that --effort allows (simulator::Predictor::work). Defaults to that of a search; 0 is no limit.
std::int64_t work_of_effort(const CommandLine& line, Errors& errors);

/// Sets the work of a search and its suggestions' part of it.
void set_effort(std::int64_t work, planner::SearchOptions& options);

/// If --effort is given, makes it the only limit of a search in this space.
void limit_by_effort_alone(const CommandLine& line, planner::Space& space);

/// Whether an option about machines is given.
bool names_machines(const CommandLine& line);

/// Applies machine options to the machines of a plan file: `--mem` alone changes the memory of its GPUs.
Result<Cluster> override_machines(const CommandLine& line, const Cluster& cluster, const std::string& library);

}  // namespace fsdp::command
