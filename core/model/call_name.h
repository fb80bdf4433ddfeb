#pragma once

// The printed name of a call: where in the model an instruction runs.

#include <string>

#include "core/model/model.h"

namespace fsdp {

/// "model.layers.3"; of the root its block, "cross_entropy", or "root" where a captured model has no name for what runs
/// there between its blocks; "loss" for what runs after the root.
std::string name_of_call(const Model& model, const Call& call);

}  // namespace fsdp
