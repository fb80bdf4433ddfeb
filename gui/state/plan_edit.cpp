#include "gui/state/plan_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/space/checkpointed_blocks.h"
#include "planner/space/rewrap.h"
#include "planner/space/space.h"
#include "planner/space/strategy_names.h"
#include "planner/space/wrapping.h"

namespace fsdp::gui {

using planner::PlanChoice;

namespace {

int index_of(const Model& model, std::string_view module) {
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    if (model.modules[i].name == module) return static_cast<int>(i);
  }
  return -1;
}

void reshard_all(Plan& plan, const planner::ReshardChoice& reshard, const Model& model) {
  for (Unit& unit : plan.units) {
    if (!is_root(unit) || reshard.root) unit.reshard_after_forward = {reshard.kind, reshard.world_size};
  }
  if (reshard.keep_last == 0) return;
  for (const Stack& stack : model.stacks) {
    std::vector<std::size_t> units;
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      if (is_inside(plan.units[u].modules.front(), stack.name)) units.push_back(u);
    }
    const auto keep = std::min(units.size(), static_cast<std::size_t>(reshard.keep_last));
    for (std::size_t i = units.size() - keep; i < units.size(); ++i) {
      plan.units[units[i]].reshard_after_forward = {ReshardAfterForward::Kind::Never, 0};
    }
  }
}

/// Where a unit of this module goes: among its neighbors in the order of the model, or else before the unit around it.
std::vector<Unit>::const_iterator place_of(const Plan& plan, const Model& model, const std::string& module) {
  const int index = index_of(model, module);
  auto place = plan.units.end();
  for (auto unit = plan.units.begin(); unit != plan.units.end(); ++unit) {
    const std::string& name = unit->modules.front();
    if (is_root(*unit) || parent_name(name) != parent_name(module)) continue;
    if (index_of(model, name) > index) return unit;
    place = unit + 1;
  }
  if (place != plan.units.end()) return place;
  return std::find_if(plan.units.begin(), plan.units.end(),
                      [&](const Unit& unit) { return is_root(unit) || is_inside(module, unit.modules.front()); });
}

Plan with_ends(Plan plan, bool are_units, const Model& model) {
  for (const int end : planner::wrappables_of(model).ends) {
    plan = with_unit(std::move(plan), model, model.modules[end].name, are_units);
  }
  return plan;
}

Result<Plan> with_strategy(Plan plan, const std::string& name, const Model& model, const Cluster& cluster) {
  planner::Space space;
  const Result<void> applied = planner::apply_strategy(name, cluster, space);
  if (!applied) return tl::unexpected(applied.error());
  plan.mesh = {world_size(cluster) / *space.shard, *space.shard};
  if (space.reshard) reshard_all(plan, *space.reshard, model);
  return plan;
}

Result<Plan> with_shard(Plan plan, std::int64_t shard, const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  if (world % shard != 0) {
    return failure(std::string(place_of(PlanChoice::Shard)),
                   fmt::format("{} GPUs cannot be split into groups of {}.", world, shard),
                   "Write a divisor of the number of GPUs.");
  }
  plan.mesh = {world / shard, shard};
  return plan;
}

/// Applies one of the choices that are made.
Result<Plan> with_choice(Plan plan, PlanChoice choice, const planner::PlanChoices& made, const Model& model,
                         const Cluster& cluster) {
  switch (choice) {
    case PlanChoice::Strategy:
      return with_strategy(std::move(plan), *made.strategy, model, cluster);
    case PlanChoice::Shard:
      return with_shard(std::move(plan), *made.shard, cluster);
    case PlanChoice::Reshard:
      reshard_all(plan, *made.reshard, model);
      return plan;
    case PlanChoice::Wrap: {
      const planner::Wrappables wrappables = planner::wrappables_of(model);
      const bool ends = planner::has_ends(plan, model, wrappables);
      return planner::with_wrap(std::move(plan), *made.wrap, ends, model, wrappables);
    }
    case PlanChoice::WrapEnds:
      return with_ends(std::move(plan), *made.wrap_ends, model);
    case PlanChoice::Checkpoint:
      if (const auto checkpointed = planner::checkpoint(plan, model, *made.checkpoint); !checkpointed) {
        return tl::unexpected(checkpointed.error());
      }
      return plan;
    case PlanChoice::CheckpointOffload:
      plan.checkpointing.offload_inputs = *made.checkpoint_offload;
      return plan;
    case PlanChoice::Offload:
      if (auto misfit = planner::offload_misfit(*made.cpu_offload, plan.runtime.framework)) {
        return tl::unexpected(Errors{std::move(*misfit)});
      }
      planner::apply_offload(plan, *made.cpu_offload);
      return plan;
    case PlanChoice::GradientSync:
      plan.sync_every_micro_batch = *made.gradient_sync == planner::GradientSync::Every;
      return plan;
    case PlanChoice::Prefetch:
      plan.forward_prefetch = *made.forward_prefetch;
      return plan;
    case PlanChoice::BackwardPrefetch:
      plan.backward_prefetch = *made.backward_prefetch;
      return plan;
    case PlanChoice::ReduceScatterBuffers:
      plan.reduce_scatter_buffers = *made.reduce_scatter_buffers;
      return plan;
    case PlanChoice::SeparateReduceScatter:
      plan.separate_reduce_scatter_group = *made.separate_reduce_scatter;
      return plan;
    case PlanChoice::CudaGraphs:
      plan.cuda_graphs = *made.cuda_graphs;
      return plan;
    default:
      return failure(std::string(place_of(choice)), "A kept plan has no such choice.", "Let the planner search again.");
  }
}

}  // namespace

Mesh mesh_on(const Mesh& mesh, std::int64_t world_size) {
  if (mesh.world_size() == world_size) return mesh;
  if (mesh.dp_replicate() == 1 || world_size % mesh.dp_shard() != 0) return {1, world_size};
  return {world_size / mesh.dp_shard(), mesh.dp_shard()};
}

Result<Plan> with_choices(Plan plan, const planner::PlanChoices& change, const Model& model, const Cluster& cluster) {
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!has(change, choice)) continue;
    FSDP_TRY(plan, with_choice(std::move(plan), choice, change, model, cluster));
  }
  return plan;
}

Plan with_unit(Plan plan, const Model& model, const std::string& module, bool is_unit) {
  const int unit = unit_of(plan, module);
  if (is_unit == (unit >= 0)) return plan;
  if (!is_unit) {
    std::vector<std::string>& modules = plan.units[unit].modules;
    std::erase(modules, module);
    if (modules.empty()) plan.units.erase(plan.units.begin() + unit);
    return plan;
  }
  const auto place = place_of(plan, model, module);
  plan.units.insert(place, Unit{{module}, planner::reshard_below_root(plan)});
  return plan;
}

Plan with_reshard(Plan plan, const std::string& module, ReshardAfterForward reshard) {
  const int unit = unit_of(plan, module);
  if (unit >= 0) plan.units[unit].reshard_after_forward = reshard;
  return plan;
}

Plan with_checkpoint(Plan plan, const std::string& module, CheckpointMode mode) {
  std::erase_if(plan.checkpointing.entries, [&](const Checkpointing::Entry& entry) { return entry.module == module; });
  if (mode != CheckpointMode::None) plan.checkpointing.entries.push_back({module, mode});
  return plan;
}

CheckpointMode checkpoint_of(const Plan& plan, std::string_view module) {
  for (const Checkpointing::Entry& entry : plan.checkpointing.entries) {
    if (entry.module == module) return entry.mode;
  }
  return CheckpointMode::None;
}

}  // namespace fsdp::gui
