#include "core/plan/reentrant_checkpoints.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"

namespace fsdp {

namespace {

constexpr std::string_view kPlace = "activation_checkpointing/modules";

Error wrong(std::string what, std::string_view hint = "Write mode full.") {
  return {std::string(kPlace), std::move(what), std::string(hint)};
}

// Settings under which no run was compared.
std::optional<Error> settings_misfit(const Plan& plan) {
  const FrameworkTraits& traits = traits_of(plan);
  const auto beside = [](std::string_view what) {
    return wrong(fmt::format("Reentrant checkpoints are not predicted beside {}.", what));
  };
  if (traits.zero_stage > 0 || traits.gathers_each_read) {
    return wrong(fmt::format("Reentrant checkpoints are not predicted for {}.", traits.title));
  }
  if (plan.checkpointing.offload_inputs) return beside("inputs of blocks in host memory");
  if (plan.forward_prefetch > 0 || plan.fsdp1.forward_prefetch) return beside("prefetches of the forward");
  if (plan.cuda_graphs) return beside("CUDA graphs");
  if (plan.mesh.ep > 1) return beside("expert parallelism");
  return std::nullopt;
}

}  // namespace

std::optional<Error> reentrant_checkpoints_misfit(const Plan& plan, const ModelIndex& index) {
  if (!plan.checkpointing.has(CheckpointMode::Reentrant)) return std::nullopt;
  if (auto misfit = settings_misfit(plan)) return misfit;
  const std::vector<CheckpointMode> modes = checkpoint_modes(index, plan.checkpointing);
  for (std::size_t c = 0; c < modes.size(); ++c) {
    if (modes[c] != CheckpointMode::Reentrant) continue;
    const Call& call = index.model->calls[c];
    const std::string& name = index.model->modules[call.module].name;
    if (call.inputs.empty() || !index.flow.requires_grad[c].front()) {
      return wrong(
          fmt::format("The input of {} has no gradient, so that a reentrant checkpoint trains nothing in it.", name),
          "Write mode full, or give the input a gradient (enable_input_require_grads).");
    }
    const int unit = unit_of(plan, name);
    if (traits_of(plan).has_dtensors && unit >= 0 && plan.units[unit].modules.size() > 1) {
      return wrong(
          fmt::format("{} shares a unit with other modules, in which a reentrant checkpoint is not predicted.", name),
          "Write mode full, or a unit for each block.");
    }
  }
  return std::nullopt;
}

}  // namespace fsdp
