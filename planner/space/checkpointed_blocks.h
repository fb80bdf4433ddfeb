#pragma once

// Which blocks of a model activation checkpointing may take, and how a plan takes the first of them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// [stack][block] Names of the blocks in forward order, each once however often it is called.
std::vector<std::vector<std::string>> blocks_of(const Model& model);

/// [stack] How many of the first blocks of each stack are checkpointed.
using StackCounts = std::vector<std::int32_t>;

/// What a plan says of a way: which ops selective checkpointing keeps.
void save_ops(Checkpointing& checkpointing, const CheckpointWay& way);
/// The way of a plan that checkpoints blocks in one way; nothing where it checkpoints none, or in ways without a name.
std::optional<CheckpointWay> way_of(const Checkpointing& checkpointing);
/// Those of the ways that differ for the blocks of a model: where nothing is saved, or the same, one is enough.
std::vector<CheckpointWay> different_ways(const std::vector<CheckpointWay>& ways, const Model& model);
/// Those that a space has for a model: of ZeRO-3 without those that keep what DeepSpeed changes.
std::vector<CheckpointWay> ways_to_search(const Space& space, const Model& model);

/// What a plan checkpoints of each stack, in whatever mode, where it is the first blocks; else nothing.
std::optional<StackCounts> first_blocks_of(const Plan& plan, const std::vector<std::vector<std::string>>& stacks);

/// The first `count` blocks of each stack, of a shorter one all.
StackCounts alike(const std::vector<std::vector<std::string>>& stacks, std::int64_t count);

/// Has the first blocks of each stack checkpointed, of a shorter one all, and nothing else.
void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, const StackCounts& counts,
                      const CheckpointWay& way);
/// The same number of each.
void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, std::int64_t count,
                      const CheckpointWay& way);

/// What `choice` takes of each stack. Errors: numbers for more or fewer stacks than the model has.
Result<StackCounts> counts_of(const CheckpointChoice& choice, const std::vector<std::vector<std::string>>& stacks);

/// In what order blocks join those that are checkpointed: what a number means in a family of plans.
struct CheckpointOrder {
  std::vector<StackCounts> counts;  ///< [number] Each has the one before it and at least a block more.

  bool operator==(const CheckpointOrder&) const = default;
};

/// Orders of a model: the first k blocks of each stack alike, k being the number; then, where there are several stacks,
/// for each of them that it comes first as a whole and the others follow in turn, the number counting all blocks. A
/// stack comes first only where it has a tenth of the products of all, and another one as well: else there is little to
/// gain. More than four stacks are taken alike only. A model without stacks has the first order, of nothing.
std::vector<CheckpointOrder> orders_of(const Model& model);

/// Whether all stacks are taken alike, as the first order has it.
bool is_alike(const StackCounts& counts, const std::vector<std::vector<std::string>>& stacks);

/// The same for what --activation-checkpointing asks for. Errors: those of counts_of(); the plan stays as it is.
Result<void> checkpoint(Plan& plan, const Model& model, const CheckpointChoice& choice);

}  // namespace fsdp::planner
