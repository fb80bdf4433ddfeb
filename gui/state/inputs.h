#pragma once

// The user's decisions: one value, which determines everything on the screen.
//
// It holds the choices that a command line makes, so that the window and the command mean the same by construction, and
// any state can be written out as a command. There are two kinds of state:
//
//   searched   no plan is kept: the planner looks for the best plan among all that the choices leave open.
//   kept       exactly this plan is predicted; choices about machines and work apply to it, choices about the plan do
//              not (its own fields are edited instead).
//
// A typed text that cannot be read is no choice. It is kept as it was typed until it is typed anew, so that its
// field shows it with its error, and undo and projects have it too.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan_file.h"
#include "planner/plan_choices.h"
#include "planner/plan_request.h"
#include "planner/space.h"
#include "render/choice_options.h"

namespace fsdp::gui {

struct Inputs {
  std::string model;             ///< A file, or the name of a shipped model.
  planner::PlanChoices choices;  ///< Absent: not decided by the user.
  /// The objective of a search.
  planner::SearchObjective objective = planner::SearchObjective::Time;
  /// Texts that cannot be read, of choices that are therefore not made.
  std::map<planner::PlanChoice, std::vector<std::string>> unread;
  std::optional<PlanFile> kept;  ///< Its cluster is what the choices about machines change.

  bool operator==(const Inputs&) const = default;
};

/// Each text of a choice: first what is chosen, then what was typed and cannot be read.
std::vector<std::string> texts_of(const Inputs& inputs, planner::PlanChoice choice);

/// The text of a choice, its last one; nothing when the user has not decided it.
std::optional<std::string> text_of(const Inputs& inputs, planner::PlanChoice choice);

/// The value of a dimension that has no choice of its own; nothing when the user has not decided it.
std::optional<std::string> text_of_dimension(const Inputs& inputs, const std::string& name);

/// Without what the user decided of a choice.
Inputs without(Inputs inputs, planner::PlanChoice choice);

/// Makes choices, patterns and sizes beside those that are there. Those that they exclude are taken back: the last one
/// that was touched counts.
Inputs with_choices(Inputs inputs, const planner::PlanChoices& change);

/// Makes a choice by its text, or takes it back with an empty one. Errors: those of the text.
Result<Inputs> with_text(Inputs inputs, planner::PlanChoice choice, const std::string& text);

/// The same for what somebody types: a text that cannot be read is kept as it is.
Inputs with_typed(Inputs inputs, planner::PlanChoice choice, const std::string& text);

/// One dimension of the model that has no choice of its own, `--set NAME=VALUE`. An empty value takes it back. Errors:
/// those of the value.
Result<Inputs> with_dimension(Inputs inputs, const std::string& name, const std::string& value);

/// Makes a choice, or keeps what cannot be read, as a file has it: nothing else is taken back.
void read_texts(planner::PlanChoice choice, const std::vector<std::string>& texts, Inputs& inputs);

/// The options of the command line for a plan.
struct GivenOptions {
  planner::ChoiceTexts texts;
  std::optional<planner::SearchObjective> objective;

  bool empty() const { return texts.empty() && !objective; }
};

/// The state with the options of a command line over what a file says. Errors: texts that cannot be read, and options
/// about the plan of a file that has one, which nobody would hear.
Result<Inputs> with_options(Inputs inputs, const GivenOptions& options);

/// Whether something is decided about machines.
bool names_machines(const Inputs& inputs);

/// The request to the planner. A kept plan answers the choices about plans by itself.
planner::PlanRequest request_of(const Inputs& inputs);

/// Errors of that request's texts that could not be read, in the order of the command.
Errors unread_errors(const Inputs& inputs);

/// A command for a shell that reproduces the state. For a kept plan it needs the plan and the cluster as they were
/// predicted, and writes them into the command.
std::string command_of(const Inputs& inputs, const PlanFile& shown);

/// The state that predicts what `shown` says and nothing else, with the work of `inputs`: what Pareto points, edited
/// units and "keep this plan" lead to.
Inputs with_kept(const Inputs& inputs, PlanFile shown);

/// The state of a plan file. Its sizes become choices where they differ from the model's own.
/// Errors: those of the file, of its model, and a plan without machines.
Result<Inputs> inputs_of_plan_file(const std::string& path, const std::string& library);

/// The state of a report that `--json` or a rehearsal wrote, whose member `plan` is a plan file, or of a plan file, or
/// of a model. Errors: what is wrong with a file that is none of these.
Result<Inputs> inputs_of_file(const std::string& path, const std::string& library);

}  // namespace fsdp::gui
