#include "planner/space/checkpoint_limits.h"

namespace fsdp::planner {

std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Space& space) {
  if (space.checkpoint || spec.captured == nullptr) return std::nullopt;
  if (!space.checkpoint_ways.empty()) {
    return "Selective checkpointing was not searched: a capture has no recording of it.";
  }
  return "Activation checkpointing was not searched: the capture has no recording of it in this precision.";
}

}  // namespace fsdp::planner
