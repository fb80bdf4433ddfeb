#include "gui/state/remedy.h"

#include <utility>

#include "gui/state/plan_edit.h"

namespace fsdp::gui {

using planner::PlanChoice;
using planner::PlanChoices;

namespace {

/// As it was priced: the user's choices of the machines stay, over the suggested ones. The new choices exclude old ones
/// of the plan.
Inputs with_priced(Inputs inputs, const PlanChoices& change) {
  inputs = with_choices(std::move(inputs), only(change, [](PlanChoice choice) { return !is_about_machines(choice); }));
  inputs.choices = with_change(std::move(inputs.choices), only(change, planner::is_about_machines));
  for (const PlanChoice choice : planner::plan_choices()) {
    if (is_about_machines(choice) && has(change, choice)) inputs.unread.erase(choice);
  }
  return inputs;
}

}  // namespace

Result<Inputs> with_remedy(const Inputs& inputs, const planner::Remedy& remedy, const Snapshot& shown) {
  const PlanChoices& change = remedy.change;
  Inputs changed = inputs;
  // A remedy that was priced by a search needs a search again.
  if (remedy.is_searched) changed.kept.reset();
  if (!remedy.is_searched && !inputs.kept) changed = with_kept(inputs, plan_file_of(shown));
  if (inputs.kept && change.gpu_name) {
    // The remedy was priced with the links of its own node.
    for (const PlanChoice old : planner::plan_choices()) {
      if (is_about_machines(old)) changed = without(std::move(changed), old);
    }
  }
  if (changed.kept && shown.model) {
    const PlanChoices of_plan = only(change, planner::is_about_plan);
    FSDP_TRY(changed.kept->plan, with_choices(changed.kept->plan, of_plan, *shown.model, shown.cluster));
  }
  return with_priced(std::move(changed), change);
}

}  // namespace fsdp::gui
