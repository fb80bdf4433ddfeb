#pragma once

// What keeps activation checkpointing from being searched, and what is said of it.

#include <optional>
#include <string>

#include "core/model/model.h"
#include "core/spec/model_spec.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// A space without what is not predicted: under FSDP1 a checkpointed block that has units inside of it, as blocks with
/// adapters have. What was asked for stays, and is refused by name.
Space checkpointable(Space space, const Model& model);

/// Why ways of checkpointing were not searched; nothing where all were, or one was asked for.
std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Model& model, const Space& space);

}  // namespace fsdp::planner
