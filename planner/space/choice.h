#pragma once

// Points of the search space, as small numbers, and the plans that they mean.
//
// A family is a choice of all that is not a matter of degree (mesh, units, batch, ...). Inside a family three numbers
// are free (all rising): how many units of each stack stay unsharded, how many blocks are checkpointed, in the family's
// order, and how much of them is saved. Step time and memory move one way with each of them, which is what the search's
// bounds rest on.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/framework_arguments.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

struct Family {
  Mesh mesh;
  int wrapping = 0;                                                       ///< In `Families::wrappings`.
  ReshardAfterForward::Kind reshard = ReshardAfterForward::Kind::Always;  ///< For the units that are not kept.
  std::int64_t reshard_world_size = 0;
  std::optional<ReshardAfterForward> root;  ///< For a root that is the only unit; empty: FSDP2's default.
  bool cpu_offload = false;
  std::int64_t micro_batch = 0;  ///< 0: as the workload says.
  std::int64_t accumulation = 1;
  bool sync_every_micro_batch = true;
  std::int64_t forward_prefetch = 0;
  std::int64_t backward_prefetch = 1;
  int arguments = 0;               ///< In `Families::arguments`.
  std::vector<std::int32_t> kept;  ///< Last groups of units of each stack that stay unsharded; all: the others too.
  int order = 0;                   ///< In `Families::orders`: which blocks a number of them is.
  std::vector<std::int32_t> checkpointed;  ///< Numbers of that order.
  /// For the blocks that are checkpointed; of none the first one.
  std::vector<CheckpointWay> ways = {CheckpointMode::Full};

  /// Whether the first number is none.
  bool has_none() const { return checkpointed.front() == 0; }
  std::int64_t size() const {
    const std::size_t none = has_none() ? 1 : 0;
    return static_cast<std::int64_t>(kept.size() * (none + (checkpointed.size() - none) * ways.size()));
  }
  bool operator==(const Family&) const = default;
};

/// A way of wrapping with what to call it.
struct NamedWrapping {
  Wrapping wrapping;
  std::string label;  ///< "per 2 blocks + embeddings, head"
  std::int64_t blocks_per_unit = 1;
  BlockParts parts = BlockParts::Whole;
  bool ends = false;
  bool frozen = false;
  bool can_stay = true;  ///< Units can stay unsharded after their forward; one of FSDP1 without a backward cannot.
};

/// A point.
struct Choice {
  int family = 0;
  std::int32_t kept = 0;
  std::int32_t checkpointed = 0;
  std::int32_t way = 0;  ///< In `Family::ways`.

  bool operator==(const Choice&) const = default;
};

/// The space of one model on one cluster.
struct Families {
  Framework framework = Framework::Fsdp2;
  std::vector<NamedWrapping> wrappings;
  std::vector<FrameworkArguments> arguments;     ///< Those of the space's base first.
  std::vector<Family> families;                  ///< In the order of the space.
  std::vector<std::vector<std::string>> blocks;  ///< [stack][block] Names of the blocks that can be checkpointed.
  std::vector<CheckpointOrder> orders;           ///< In which they are; that of all stacks alike first.

  std::int64_t size() const;
  std::int64_t num_blocks() const;
  std::int64_t longest_stack() const;
  /// Counts of each stack, at a number of a family's order.
  const StackCounts& checkpointed(const Family& family, std::int32_t number) const {
    return orders[static_cast<std::size_t>(family.order)].counts[static_cast<std::size_t>(number)];
  }
  const CheckpointWay& way_of(const Choice& choice) const {
    return families[static_cast<std::size_t>(choice.family)].ways[static_cast<std::size_t>(choice.way)];
  }
};

/// Writes the space out. Errors: fixed choices that no plan can meet, all of them.
Result<Families> families_of(const Space& space, const Model& model, const Cluster& cluster);

/// The plan of a point: `base` with everything that the point decides. Dimensions are left to the caller.
Plan plan_of(const Plan& base, const Families& families, const Choice& choice);

/// The units of a family with `kept` units of each stack left unsharded: bottom-up, the root last.
std::vector<Unit> units_of(const Wrapping& wrapping, const Family& family, std::int64_t kept);

/// "FULL_SHARD, per 2 blocks, checkpoint 12 of 28": what tells it from its neighbors.
std::string label_of(const Families& families, const Choice& choice);

/// "reshard False for the last 8, per 2 blocks": what the first has and the other has not; "without CPU offload" where
/// it has only less.
std::string difference_of(const Families& families, const Choice& choice, const Choice& other);

/// Sizes of shard groups for a number of GPUs, the largest first: parts of a node and whole nodes that
/// divide it.
std::vector<std::int64_t> shard_sizes(const Cluster& cluster);

}  // namespace fsdp::planner
