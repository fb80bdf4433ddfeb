#include "planner/strategy_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/nearest.h"

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

bool is_root(const Unit& unit) {
  return std::find(unit.modules.begin(), unit.modules.end(), "") != unit.modules.end();
}

/// How many units below the root have each setting. A plan of the root alone counts the root.
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
    if (is_root(unit) && (plan.units.size() > 1 || reshard.kind != Kind::Default)) continue;
    if (reshard.kind == Kind::Never || is_root(unit)) {
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

std::string fsdp1_name(const Plan& plan) {
  if (plan.mesh.shard == 1) return "NO_SHARD";
  const bool hybrid = plan.mesh.replicate > 1;
  const std::string_view full = hybrid ? "HYBRID_SHARD" : "FULL_SHARD";
  const std::string_view grad_op = hybrid ? "_HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP";
  const ReshardCounts counts = count_reshards(plan);
  if (counts.never == 0) return std::string(full);
  if (counts.always + counts.smaller == 0) return std::string(grad_op);
  return fmt::format("{}, {} {} as {}", full, counts.never, counts.never == 1 ? "unit" : "units", grad_op);
}

std::string fsdp2_name(const Plan& plan) {
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
  return fmt::format("mesh ({}, {}), reshard_after_forward={}", plan.mesh.replicate, plan.mesh.shard, reshard);
}

Result<void> apply_strategy(std::string_view name, const Cluster& cluster, Space& space) {
  const auto strategy = std::find_if(kStrategies.begin(), kStrategies.end(),
                                     [&](const Strategy& candidate) { return candidate.name == name; });
  if (strategy == kStrategies.end()) {
    std::vector<std::string_view> names;
    for (const Strategy& candidate : kStrategies) names.push_back(candidate.name);
    return failure("--strategy", fmt::format("\"{}\" is not a sharding strategy.", name), suggest_name(name, names));
  }
  if (strategy->shard == Strategy::Shard::Node && cluster.nodes == 1) {
    return failure("--strategy", fmt::format("{} shards inside a node, and there is only one node.", name),
                   fmt::format("Write {}, or --shard with fewer GPUs than {}.",
                               strategy->reshards ? "FULL_SHARD" : "SHARD_GRAD_OP", world_size(cluster)));
  }
  switch (strategy->shard) {
    case Strategy::Shard::All:
      space.shard = world_size(cluster);
      break;
    case Strategy::Shard::Node:
      space.shard = cluster.gpus_per_node;
      break;
    case Strategy::Shard::None:
      space.shard = 1;
      break;
  }
  // Without shards nothing is gathered, so what happens to the copies after forward stays free.
  if (strategy->shard != Strategy::Shard::None) {
    space.reshard = ReshardChoice{strategy->reshards ? Kind::Always : Kind::Never, 0, 0};
  }
  return {};
}

}  // namespace fsdp::planner
