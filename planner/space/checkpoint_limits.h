#pragma once

// Limits of the search over activation checkpointing, and the notes that report them.

#include <optional>
#include <string>

#include "core/model/model.h"
#include "core/spec/model_spec.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// Removes from the space the ways of checkpointing that we do not predict: under FSDP1 a checkpointed block that
/// contains units, as blocks with adapters do. A way that the user requested stays, and check() refuses it by name.
Space checkpointable(Space space, const Model& model);

/// The reason why some ways of checkpointing were not searched. `nullopt` if all were searched, or if the user
/// requested one.
std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Model& model, const Space& space);

}  // namespace fsdp::planner
