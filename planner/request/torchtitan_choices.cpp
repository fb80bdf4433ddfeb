#include "planner/request/torchtitan_choices.h"

#include <fmt/format.h>

#include <string>

#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"

namespace fsdp::planner {

void set_flavor(Plan& plan, const Runtime& of_flavor) {
  plan.runtime.flavor = of_flavor.flavor;
  plan.runtime.implementations = of_flavor.implementations;
  const FlavorHabits habits = habits_of_flavor(of_flavor.flavor);
  plan.checkpointing.early_stop = habits.early_stop;
  plan.mixed_precision.cast_forward_inputs = habits.cast_forward_inputs;
  if (!habits.decays_weights) plan.optimizer.weight_decay = 0;
}

void fix_graphs(const PlanChoices& choices, Space& space) {
  space.base.cuda_graphs = choices.cuda_graphs.value_or(space.base.cuda_graphs);
  if (!space.base.cuda_graphs) return;
  space.may_expand_segments = false;
  if (!space.cpu_offload) space.cpu_offload = false;
  if (!space.accumulation) space.accumulation = 1;
}

std::optional<Error> graphs_misfit(const Plan& plan, bool is_of_unknown_release) {
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
