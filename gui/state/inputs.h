#pragma once

// The user's decisions: one value that determines everything on the screen.
//
// It stores the choices of a command line, so that the window and the command mean the same, and every state can be
// written as a command. There are two kinds of state:
//
//   searched   no plan is kept: the planner looks for the best plan among all that the choices leave open.
//   kept       exactly this plan is predicted; choices about machines and work apply to it, choices about the plan do
//              not (its own fields are edited instead).
//
// A typed text that cannot be read is no choice. We store it as typed until the user changes it, so that its field
// shows it with its error, and undo and projects include it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan_file.h"
#include "planner/request/plan_request.h"
#include "planner/space/plan_choices.h"
#include "planner/space/space.h"
#include "render/choice_options.h"

namespace fsdp::gui {

struct Inputs {
  std::string model;             ///< A file, or the name of a shipped model.
  planner::PlanChoices choices;  ///< A member is absent if the user did not decide it.
  /// The objective of a search.
  planner::SearchObjective objective = planner::SearchObjective::Time;
  /// Unreadable texts; their choices are not made.
  std::map<planner::PlanChoice, std::vector<std::string>> unread;
  std::optional<PlanFile> kept;  ///< The choices about machines change its cluster.

  bool operator==(const Inputs&) const = default;
};

/// Each text of a choice: first the chosen ones, then those that cannot be read.
std::vector<std::string> texts_of(const Inputs& inputs, planner::PlanChoice choice);

/// The text of a choice, its last one; nullopt if the user has not decided it.
std::optional<std::string> text_of(const Inputs& inputs, planner::PlanChoice choice);

/// The value of a dimension that has no choice of its own; nullopt if the user has not decided it.
std::optional<std::string> text_of_dimension(const Inputs& inputs, const std::string& name);

/// The inputs without the user's decision of a choice.
Inputs without(Inputs inputs, planner::PlanChoice choice);

/// Adds choices, patterns and sizes to those that exist. The choices that they exclude are taken back: the last change
/// wins.
Inputs with_choices(Inputs inputs, const planner::PlanChoices& change);

/// Makes a choice by its text, or takes it back with an empty one. Errors: those of the text.
Result<Inputs> with_text(Inputs inputs, planner::PlanChoice choice, const std::string& text);

/// The same for typed text: a text that cannot be read is stored as it is.
Inputs with_typed(Inputs inputs, planner::PlanChoice choice, const std::string& text);

/// One dimension of the model that has no choice of its own, `--set NAME=VALUE`. An empty value takes it back. Errors:
/// those of the value.
Result<Inputs> with_dimension(Inputs inputs, const std::string& name, const std::string& value);

/// Makes a choice, or stores an unreadable text, as a file has it, and takes back nothing else.
void read_texts(planner::PlanChoice choice, const std::vector<std::string>& texts, Inputs& inputs);

/// The options of the command line for a plan.
struct GivenOptions {
  render::ChoiceTexts texts;
  std::optional<planner::SearchObjective> objective;

  bool empty() const { return texts.empty() && !objective; }
};

/// Applies the options of a command line over the contents of a file. Errors: unreadable texts, and options about the
/// plan if the file has a plan, which would have no effect.
Result<Inputs> with_options(Inputs inputs, const GivenOptions& options);

/// Whether any choice about machines is made.
bool names_machines(const Inputs& inputs);

/// The request to the planner. A kept plan itself answers the choices about plans.
planner::PlanRequest request_of(const Inputs& inputs);

/// Errors of the unreadable texts of that request, in the order of the command.
Errors unread_errors(const Inputs& inputs);

/// A shell command that reproduces the state. For a kept plan it writes the plan and the cluster as they were predicted
/// into the command.
std::string command_of(const Inputs& inputs, const PlanFile& shown);

/// The state that predicts exactly `shown`, with the work of `inputs`. Pareto points, edited units and "keep this plan"
/// lead to it.
Inputs with_kept(const Inputs& inputs, PlanFile shown);

/// The state of a plan file. Its sizes become choices if they differ from the model's own. Errors: those of the file,
/// of its model, and a plan without machines.
Result<Inputs> inputs_of_plan_file(const std::string& path, const std::string& library);

/// The state of a file: a report that `--json` or a rehearsal wrote, whose member `plan` is a plan file; a plan file;
/// or a model. Errors: those of a file that is none of these.
Result<Inputs> inputs_of_file(const std::string& path, const std::string& library);

}  // namespace fsdp::gui
