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

namespace fsdp::planner {

/// The options of a plan as choices, without a model; `is_wanted`: only some of them. Adds what is wrong with their
/// texts to `errors`; such a choice is not made, and is on the list `unread`.
PlanRequest read_choices(const CommandLine& line, Errors& errors, bool (*is_wanted)(PlanChoice) = nullptr);

/// Errors: everything that is wrong with the options and with the files that they name, in one go.
Result<ResolvedRequest> read_request(const CommandLine& line, const std::string& library);

/// The machines of a command line. Errors: unreadable options, and those of resolve_machines.
Result<Cluster> read_machines(const CommandLine& line, const std::string& library);

/// The work that --effort allows (simulator::Predictor::work), that of a search unless it is given; 0: no limit.
std::int64_t work_of_effort(const CommandLine& line, Errors& errors);

/// Gives a search that work, and its suggestions their part of it.
void set_effort(std::int64_t work, SearchOptions& options);

/// Where --effort is given, it is the only limit of a search in this space.
void limit_by_effort_alone(const CommandLine& line, Space& space);

/// True when an option about machines is given.
bool names_machines(const CommandLine& line);

/// A machine option over the machines of a plan file: `--mem` alone changes the memory of its GPUs.
Result<Cluster> override_machines(const CommandLine& line, const Cluster& cluster, const std::string& library);

}  // namespace fsdp::planner
