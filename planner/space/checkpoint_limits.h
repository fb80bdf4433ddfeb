#pragma once

// The note that reports limits of the search over activation checkpointing.

#include <optional>
#include <string>

#include "core/spec/model_spec.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The reason why some ways of checkpointing were not searched. `nullopt` if all were searched, or if the user
/// requested one.
std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Space& space);

}  // namespace fsdp::planner
