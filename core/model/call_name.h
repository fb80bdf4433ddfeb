#pragma once

// The printed name of a call: the place of an instruction in the model.

#include <string>

#include "core/model/model.h"

namespace fsdp {

/// "model.layers.3"; "loss" for ops after the root. For ops of the root itself: its block, "cross_entropy", or "root"
/// if a captured model has no name for ops between its blocks.
std::string name_of_call(const Model& model, const Call& call);

}  // namespace fsdp
