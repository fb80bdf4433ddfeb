#pragma once

// A remedy is a few choices, such as "--gpus 8 --nodes 2", priced on the plan that is shown: what they make of the
// state.

#include <string>

#include "core/base/result.h"
#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

/// The inputs that predict what was priced: the plan that is shown, kept, with the choices of the remedy. The choices
/// are remembered beside it, so that a search afterwards has them too. Errors: a plan that has no such choice.
Result<Inputs> with_remedy(const Inputs& inputs, const planner::Remedy& remedy, const Snapshot& shown);

}  // namespace fsdp::gui
