#pragma once

// Lists of machines on a command line: --gpus 4,8 --gpu L4,A10G --at-most 16.

#include <string>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "planner/request/machine_choice.h"
#include "planner/space/space.h"

namespace fsdp::command {

/// Whether a command line asks which of several machines is best: lists, a limit, an objective of machines or prices.
bool compares_machines(const CommandLine& line);

/// The --objective for the plan of one machine. Defaults to time, also if the objective applies to machines only.
/// Adds errors in the option to `errors`.
planner::SearchObjective search_objective_of(const CommandLine& line, Errors& errors);

/// Whether an option lists several values: --gpu L4,A10G.
bool is_list(const CommandLine& line, Option option);

/// The names of --gpu L4,A10G. Adds an error for an empty name to `errors`.
std::vector<std::string> gpu_names_of(const CommandLine& line, Errors& errors);

/// The same command line without options that list machines.
CommandLine without_lists(CommandLine line);

/// The same command line with --gpus and --nodes in place of --world-size. Adds errors in these options to
/// `errors`, and then those in the rest of the request, too.
CommandLine with_world_in_nodes(const CommandLine& line, const std::string& library, Errors& errors);

/// The options of a command line for several machines.
struct MachineWords {
  planner::MachineRange range;
  planner::MachineObjective objective = planner::MachineObjective::Time;
  std::vector<planner::GpuPrice> prices;
  CommandLine rest;  ///< Without the options in `range`.
};

/// Adds errors in the texts to `errors`.
MachineWords read_machine_words(const CommandLine& line, Errors& errors);

}  // namespace fsdp::command
