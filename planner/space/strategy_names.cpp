#include "planner/space/strategy_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/nearest.h"
#include "core/plan/framework_traits.h"

namespace fsdp::planner {

namespace {

using Kind = ReshardAfterForward::Kind;

struct Strategy {
  std::string_view name;
  enum class Shard { All, Node, None } shard;
  bool reshards;
};

constexpr std::array kStrategies = {
    Strategy{"FULL_SHARD", Strategy::Shard::All, true},
    Strategy{"SHARD_GRAD_OP", Strategy::Shard::All, false},
    Strategy{"NO_SHARD", Strategy::Shard::None, true},
    Strategy{"HYBRID_SHARD", Strategy::Shard::Node, true},
    Strategy{"_HYBRID_SHARD_ZERO2", Strategy::Shard::Node, false},
};

/// The number of units below the root with each setting. A plan whose only unit is the root counts the root.
struct ReshardCounts {
  std::int64_t always = 0;
  std::int64_t never = 0;
  std::int64_t smaller = 0;
  std::int64_t smaller_size = 0;
};

ReshardCounts count_reshards(const Plan& plan) {
  ReshardCounts counts;
  for (const Unit& unit : plan.units) {
    const ReshardAfterForward& reshard = unit.reshard_after_forward;
    if (is_root(unit) && plan.units.size() > 1) continue;
    if (reshard.kind == Kind::Never || (is_root(unit) && reshard.kind == Kind::Default)) {
      ++counts.never;
    } else if (reshard.kind == Kind::Smaller) {
      ++counts.smaller;
      counts.smaller_size = reshard.world_size;
    } else {
      ++counts.always;
    }
  }
  return counts;
}

}  // namespace

bool has_mixed_reshard(const Plan& plan) {
  const ReshardCounts counts = count_reshards(plan);
  return plan.mesh.dp_shard() > 1 && counts.never > 0 && counts.always + counts.smaller > 0;
}

std::string fsdp1_name(const Plan& plan) {
  if (plan.mesh.dp_shard() == 1) return "NO_SHARD";
  const bool hybrid = plan.mesh.dp_replicate() > 1;
  const ReshardCounts counts = count_reshards(plan);
  // FullyShardedDataParallel without arguments is FULL_SHARD.
  const bool is_default = traits_of(plan).has_flat_parameters && plan.units.size() == 1 &&
                          plan.units.front().reshard_after_forward.kind == Kind::Default;
  const bool keeps_all = !is_default && counts.never > 0 && counts.always + counts.smaller == 0;
  if (keeps_all) return hybrid ? "_HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP";
  return hybrid ? "HYBRID_SHARD" : "FULL_SHARD";
}

std::string_view mode_of_mesh(const Mesh& mesh) {
  if (mesh.dp_shard() > 1) return mesh.dp_replicate() > 1 ? "hybrid_shard" : "fully_shard";
  return mesh.dp_replicate() > 1 ? "replicate" : "fully_shard";
}

std::string strategy_name(const Plan& plan) {
  const FrameworkTraits& traits = traits_of(plan);
  if (traits.mesh == MeshRule::AllCopies && plan.mesh.world_size() == 1) return "no wrapper";
  if (traits.mesh != MeshRule::Chosen) return std::string(traits.title);
  if (!traits.wraps_units) return fmt::format("{} {}", traits.title, mode_of_mesh(plan.mesh));
  const bool is_hybrid = plan.mesh.dp_replicate() > 1 && plan.mesh.dp_shard() > 1;
  return is_hybrid ? "HYBRID_SHARD" : fsdp1_name(plan);
}

std::string fsdp2_name(const Plan& plan) {
  if (traits_of(plan).has_flat_parameters) {
    const bool hybrid = plan.mesh.dp_replicate() > 1 && plan.mesh.dp_shard() > 1;
    return fmt::format("{}, {}{}, use_orig_params={}", traits_of(plan).call, fsdp1_name(plan),
                       hybrid ? fmt::format(" over ({}, {})", plan.mesh.dp_replicate(), plan.mesh.dp_shard()) : "",
                       plan.fsdp1.use_orig_params ? "True" : "False");
  }
  const ReshardCounts counts = count_reshards(plan);
  std::vector<std::string> parts;
  const auto add = [&](std::string_view value, std::int64_t count) {
    if (count == 0) return;
    const bool is_only = count == counts.always + counts.never + counts.smaller;
    parts.push_back(is_only ? std::string(value)
                            : fmt::format("{} for {} {}", value, count, count == 1 ? "unit" : "units"));
  };
  add("True", counts.always);
  add(fmt::format("{}", counts.smaller_size), counts.smaller);
  add("False", counts.never);
  std::string reshard;
  for (const std::string& part : parts) reshard += (reshard.empty() ? "" : ", ") + part;
  return fmt::format("mesh ({}, {}), reshard_after_forward={}", plan.mesh.dp_replicate(), plan.mesh.dp_shard(),
                     reshard);
}

std::string short_reshard(const Plan& plan) {
  const ReshardCounts counts = count_reshards(plan);
  if (has_mixed_reshard(plan) && counts.smaller == 0) {
    return fmt::format("reshard_after_forward=False for {} of {} units", counts.never, counts.always + counts.never);
  }
  if (traits_of(plan).has_flat_parameters)
    return fmt::format("use_orig_params={}", plan.fsdp1.use_orig_params ? "True" : "False");
  const std::string whole = fsdp2_name(plan);
  return whole.substr(whole.find("reshard_after_forward"));
}

namespace {

/// The shard size of a hybrid strategy: a node, as in FSDP1. `nullopt` on a single node; there each size with several
/// copies is possible.
Result<std::optional<std::int64_t>> hybrid_shard(const Strategy& strategy, const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  const auto refused = [&](std::string why) {
    return failure("--strategy",
                   fmt::format("{} keeps several copies of the model and shards each: {}.", strategy.name, why),
                   fmt::format("Write {}.", world == 1          ? "NO_SHARD"
                                            : strategy.reshards ? "FULL_SHARD"
                                                                : "SHARD_GRAD_OP"));
  };
  if (cluster.nodes > 1) {
    if (cluster.gpus_per_node == 1) return refused("a node has one GPU to shard over");
    return cluster.gpus_per_node;
  }
  for (std::int64_t shard = 2; shard < world; ++shard) {
    if (world % shard == 0) return std::nullopt;
  }
  return refused(fmt::format("{} {} cannot be split this way", world, world == 1 ? "GPU" : "GPUs"));
}

bool is_ddp(std::string_view name) {
  return name == "DDP" || name == "ddp" || name == "DistributedDataParallel";
}

}  // namespace

Result<void> apply_strategy(std::string_view name, const Cluster& cluster, Space& space) {
  const auto strategy = std::find_if(kStrategies.begin(), kStrategies.end(),
                                     [&](const Strategy& candidate) { return candidate.name == name; });
  if (is_ddp(name)) {
    return failure("--strategy", fmt::format("{} is not an FSDP sharding strategy.", name), "Write --runtime ddp.");
  }
  if (strategy == kStrategies.end()) {
    std::vector<std::string_view> names;
    for (const Strategy& candidate : kStrategies) names.push_back(candidate.name);
    return failure("--strategy", fmt::format("\"{}\" is not a sharding strategy.", name), suggest_name(name, names));
  }
  if (strategy->shard == Strategy::Shard::All && world_size(cluster) == 1) {
    return failure("--strategy", fmt::format("{} needs more than one GPU.", name),
                   "Write NO_SHARD, or leave --strategy out.");
  }
  space.strategy = name;
  if (strategy->shard == Strategy::Shard::Node) {
    FSDP_TRY(const std::optional<std::int64_t> shard, hybrid_shard(*strategy, cluster));
    space.shard = shard;
    space.hybrid = true;
  }
  switch (strategy->shard) {
    case Strategy::Shard::All:
      space.shard = world_size(cluster);
      break;
    case Strategy::Shard::Node:
      break;
    case Strategy::Shard::None:
      space.shard = 1;
      break;
  }
  // Without shards nothing is gathered, so the setting after forward stays free.
  if (strategy->shard != Strategy::Shard::None) {
    space.reshard = ReshardChoice{strategy->reshards ? Kind::Always : Kind::Never, 0, 0};
  }
  return {};
}

}  // namespace fsdp::planner
