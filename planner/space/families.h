#pragma once

// Points of the search space as small numbers, and the plans that they stand for.
//
// A family fixes every choice that has no degrees: mesh, units, batch and so on. Three numbers are free inside a
// family, and rise: how many units of each stack stay unsharded, how many blocks are checkpointed in the family's
// order, and how much of them is saved. Step time and memory are monotonic in each number; the search's bounds rest on
// that.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/framework_arguments.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

struct Family {
  Mesh mesh;
  int wrapping = 0;                                                       ///< An index of `Families::wrappings`.
  ReshardAfterForward::Kind reshard = ReshardAfterForward::Kind::Always;  ///< For the units that are resharded.
  std::int64_t reshard_world_size = 0;
  std::optional<ReshardAfterForward> root;  ///< For a root that is the only unit. `nullopt` for FSDP2's default.
  bool keeps_head = false;                  ///< Units of ends after the blocks stay unsharded (`Wrapping::heads`).
  bool cpu_offload = false;
  std::int64_t micro_batch = 0;  ///< Defaults to the workload's own.
  std::int64_t accumulation = 1;
  bool sync_every_micro_batch = true;
  std::int64_t forward_prefetch = 0;
  std::int64_t backward_prefetch = 1;
  int arguments = 0;               ///< An index of `Families::arguments`.
  std::vector<std::int32_t> kept;  ///< The last groups of units of each stack that stay unsharded. If all do, the other
                                   ///< units stay unsharded, too.
  int order = 0;                   ///< An index of `Families::orders`: the blocks that a number stands for.
  std::vector<std::int32_t> checkpointed;  ///< Numbers in that order.
  /// For the checkpointed blocks. A family that checkpoints none has the first way only.
  std::vector<CheckpointWay> ways = {CheckpointMode::Full};

  /// True if the first number is 0.
  bool has_none() const { return checkpointed.front() == 0; }
  std::int64_t size() const {
    const std::size_t none = has_none() ? 1 : 0;
    return static_cast<std::int64_t>(kept.size() * (none + (checkpointed.size() - none) * ways.size()));
  }
  bool operator==(const Family&) const = default;
};

/// A way of wrapping, with its name.
struct NamedWrapping {
  Wrapping wrapping;
  std::string label;  ///< "per 2 blocks + embeddings, head"
  std::int64_t blocks_per_unit = 1;
  BlockParts parts = BlockParts::Whole;
  bool ends = false;
  bool frozen = false;
  bool can_stay = true;  ///< Units can stay unsharded after their forward; not under FSDP1 without a backward.
};

/// A point of the space.
struct PlanPoint {
  int family = 0;
  std::int32_t kept = 0;
  std::int32_t checkpointed = 0;
  std::int32_t way = 0;  ///< An index of `Family::ways`.

  bool operator==(const PlanPoint&) const = default;
};

/// The space of one model on one cluster.
struct Families {
  Framework framework = kDefaultFramework;
  std::vector<NamedWrapping> wrappings;
  std::vector<FrameworkArguments> arguments;     ///< Those of the space's base come first.
  std::vector<Family> families;                  ///< In the order of the space.
  std::vector<std::vector<std::string>> blocks;  ///< [stack][block] Names of the blocks that can be checkpointed.
  std::vector<CheckpointOrder> orders;           ///< Orders of the blocks, first the one that treats all stacks alike.

  std::int64_t size() const;
  std::int64_t num_blocks() const;
  std::int64_t longest_stack() const;
  /// The checkpointed blocks of each stack at a number of a family's order.
  const StackCounts& checkpointed(const Family& family, std::int32_t number) const {
    return orders[static_cast<std::size_t>(family.order)].counts[static_cast<std::size_t>(number)];
  }
  const CheckpointWay& way_of(const PlanPoint& plan_point) const {
    return families[static_cast<std::size_t>(plan_point.family)].ways[static_cast<std::size_t>(plan_point.way)];
  }
};

/// Lists the families of the space. Errors: all fixed choices that no plan can satisfy.
Result<Families> families_of(const Space& space, const Model& model, const Cluster& cluster);

/// The plan of a point: `base` with all choices of the point. The caller sets the dimensions.
Plan plan_of(const Plan& base, const Families& families, const PlanPoint& plan_point);

/// The units of a family whose last `kept` units of each stack stay unsharded: bottom-up, the root last.
std::vector<Unit> units_of(const Wrapping& wrapping, const Family& family, std::int64_t kept);

/// "FULL_SHARD, per 2 blocks, checkpoint 12 of 28": the parts that distinguish a point from its neighbors.
std::string label_of(const Families& families, const PlanPoint& plan_point);

/// "reshard False for the last 8, per 2 blocks": the choices of the first point that the other does not share. "without
/// CPU offload" if the first lacks a choice of the other and adds none.
std::string difference_of(const Families& families, const PlanPoint& plan_point, const PlanPoint& other);

/// Sizes of shard groups for a number of GPUs, largest first: parts of a node, and numbers of whole nodes that divide
/// the GPUs.
std::vector<std::int64_t> shard_sizes(const Cluster& cluster);

}  // namespace fsdp::planner
