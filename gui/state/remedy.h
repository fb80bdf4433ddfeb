#pragma once

// A remedy is a few choices, such as "--gpus 8 --nodes 2", priced on the shown plan. This applies them to the state.

#include <string>

#include "core/base/result.h"
#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

/// The inputs that predict what was priced: the shown plan, kept, with the choices of the remedy. The choices also stay
/// in the inputs, so that a later search has them, too. Errors: a plan that has no such choice.
Result<Inputs> with_remedy(const Inputs& inputs, const planner::Remedy& remedy, const Snapshot& shown);

}  // namespace fsdp::gui
