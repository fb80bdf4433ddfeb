#pragma once

// A remedy is a few options of the command line, such as "--gpus 8 --nodes 2": what they make of the state.

#include <string>

#include "core/result.h"
#include "gui/inputs.h"
#include "gui/snapshot.h"

namespace fsdp::gui {

/// The inputs with the options of a remedy. In a kept plan, options about the plan change the plan itself. Errors:
/// those of the options.
Result<Inputs> with_remedy(const Inputs& inputs, const std::string& flags, const Snapshot& shown);

}  // namespace fsdp::gui
