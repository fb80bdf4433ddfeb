#pragma once

// The flavor and the CUDA graphs of torchtitan 0.3, by what a user says of them.

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "core/plan/torch_version.h"
#include "planner/space/plan_choices.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// Sets the model code of a plan, with the habits of its training loop.
inline void set_flavor(Plan& plan, const Runtime& of_flavor) {
  plan.runtime.flavor = of_flavor.flavor;
  plan.runtime.implementations = of_flavor.implementations;
  const FlavorHabits habits = habits_of_flavor(of_flavor.flavor);
  plan.checkpointing.early_stop = habits.early_stop;
  plan.mixed_precision.cast_forward_inputs = habits.cast_forward_inputs;
}

/// Captures CUDA graphs if they are chosen. Then the space lacks what check() refuses beside them.
inline void fix_graphs(const PlanChoices& choices, Space& space) {
  space.base.cuda_graphs = choices.cuda_graphs.value_or(space.base.cuda_graphs);
  if (!space.base.cuda_graphs) return;
  space.may_expand_segments = false;
  if (!space.cpu_offload) space.cpu_offload = false;
  if (!space.accumulation) space.accumulation = 1;
}

/// Why the framework or the release has no CUDA graphs that are predicted. `nullopt` if the plan has none, or has
/// these, or if its release is unknown.
inline std::optional<Error> graphs_misfit(const Plan& plan, bool is_of_unknown_release) {
  if (!plan.cuda_graphs) return std::nullopt;
  const std::string where(place_of(PlanChoice::CudaGraphs));
  if (!traits_of(plan).has_unit_setters) {
    return Error{where, "CUDA graphs are predicted under FSDP2 alone.", "Leave it out, or plan for --runtime fsdp2."};
  }
  const TorchVersion& version = torch_version_of(plan.runtime);
  if (version.has_reduce_scatter_settings || is_of_unknown_release) return std::nullopt;
  return Error{
      where,
      fmt::format("torchtitan 0.3, whose CUDA graphs are predicted, needs PyTorch 2.13, and not {}.", version.name),
      "Leave it out, or plan for --torch 2.13 or later."};
}

}  // namespace fsdp::planner
