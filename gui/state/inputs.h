#pragma once

// What the user has decided: one value, from which everything on the screen follows.
//
// It holds what a command line would hold, an option and its text, so that the window and the command mean the same by
// construction, and any state can be written out as a command. There are two kinds of state:
//
//   searched   no plan is kept: the planner looks for the best plan among all that the options leave open.
//   kept       exactly this plan is predicted; options about machines and work apply to it, options about the plan do
//              not (its own fields are edited instead).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan_file.h"

namespace fsdp::gui {

struct Inputs {
  std::string model;                                            ///< A file, or the name of a shipped model.
  std::map<planner::Option, std::vector<std::string>> options;  ///< As texts. Absent: not decided by the user.
  std::optional<PlanFile> kept;  ///< Its cluster is what the options about machines change.

  bool operator==(const Inputs&) const = default;
};

/// The text of an option; nothing when the user has not decided it.
std::optional<std::string> text_of(const Inputs& inputs, planner::Option option);

/// Sets an option, or takes it back with an empty text.
Inputs with_option(Inputs inputs, planner::Option option, const std::string& text);

/// One dimension of the model that has no option of its own, `--set NAME=VALUE`. An empty value takes it back.
Inputs with_dimension(Inputs inputs, const std::string& name, const std::string& value);

/// True for an option that says something about the plan, which a kept plan answers by itself.
bool is_about_plan(planner::Option option);

/// The command line that these inputs are, without what a kept plan says: `fsdp-plan MODEL options`.
planner::CommandLine line_of(const Inputs& inputs);

/// The words of `fsdp-plan MODEL options`, without the program.
std::vector<std::string> words_of(const Inputs& inputs);

/// A command for a shell that reproduces the state. Of a kept plan it needs the plan and the cluster as they were
/// predicted, and writes them into the command.
std::string command_of(const Inputs& inputs, const PlanFile& shown);

/// A word as a shell takes it literally.
std::string shell_quoted(const std::string& word);

/// The state that predicts what `shown` says and nothing else, with the work of `inputs`: what Pareto points, edited
/// units and "keep this plan" lead to.
Inputs with_kept(const Inputs& inputs, PlanFile shown);

/// The state of a plan file. Its sizes become options where they differ from the model's own.
/// Errors: those of the file, of its model, and a plan without machines.
Result<Inputs> inputs_of_plan_file(const std::string& path, const std::string& library);

/// The state of a report that `--json` or a rehearsal wrote, whose member `plan` is a plan file, or of a plan file, or
/// of a model. Errors: what is wrong with a file that is none of these.
Result<Inputs> inputs_of_file(const std::string& path, const std::string& library);

}  // namespace fsdp::gui
