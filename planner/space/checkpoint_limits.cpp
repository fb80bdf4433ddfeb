#include "planner/space/checkpoint_limits.h"

#include "core/plan/framework_traits.h"
#include "planner/space/wrap_apart.h"

namespace fsdp::planner {

namespace {

bool has_units_in_blocks(const Model& model, const Space& space) {
  return traits_of(space.base).has_flat_parameters && has_kinds_in_a_block(model, space.base);
}

}  // namespace

Space checkpointable(Space space, const Model& model) {
  if (!space.checkpoint && has_units_in_blocks(model, space)) space.checkpoint_ways.clear();
  return space;
}

std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Model& model, const Space& space) {
  if (space.checkpoint) return std::nullopt;
  if (has_units_in_blocks(model, space)) {
    return "Activation checkpointing was not searched: under FSDP1 the trained part of a partly frozen block is its "
           "own unit, and units inside of a checkpointed block are not predicted. FSDP2 has no such units.";
  }
  if (spec.captured == nullptr) return std::nullopt;
  if (!space.checkpoint_ways.empty()) {
    return "Selective checkpointing was not searched: a capture has no recording of it.";
  }
  return "Activation checkpointing was not searched: the capture has no recording of it in this precision.";
}

}  // namespace fsdp::planner
