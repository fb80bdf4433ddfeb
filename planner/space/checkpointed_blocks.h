#pragma once

// Which blocks of a model activation checkpointing may take, and how a plan checkpoints the first of them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// [stack][block] Names of the blocks in forward order, each once even if forward calls it several times.
std::vector<std::vector<std::string>> blocks_of(const Model& model);

/// [stack] The number of first blocks of each stack that are checkpointed.
using StackCounts = std::vector<std::int32_t>;

/// Sets the ops that selective checkpointing saves to those of `way`.
void save_ops(Checkpointing& checkpointing, const CheckpointWay& way);
/// The way in which a plan checkpoints its blocks. `nullopt` if it checkpoints none, or in several ways, or in one
/// without a name.
std::optional<CheckpointWay> way_of(const Checkpointing& checkpointing);
/// The ways that differ for the blocks of a model. If several save the same ops, only the first stays.
std::vector<CheckpointWay> different_ways(const std::vector<CheckpointWay>& ways, const Model& model);
/// The ways that a space searches for a model. Under ZeRO-3 without those that save tensors that DeepSpeed changes.
std::vector<CheckpointWay> ways_to_search(const Space& space, const Model& model);

/// The number of blocks that a plan checkpoints in each stack, in any mode. `nullopt` if they are not the first blocks
/// of the stack.
std::optional<StackCounts> first_blocks_of(const Plan& plan, const std::vector<std::vector<std::string>>& stacks);

/// The first `count` blocks of each stack; all blocks of a shorter one.
StackCounts alike(const std::vector<std::vector<std::string>>& stacks, std::int64_t count);

/// Checkpoints exactly the first blocks of each stack, and all blocks of a shorter one.
void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, const StackCounts& counts,
                      const CheckpointWay& way);
/// The same number for each stack.
void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, std::int64_t count,
                      const CheckpointWay& way);

/// The number of blocks that `choice` checkpoints in each stack. Errors: the choice has numbers for more or fewer
/// stacks than the model has.
Result<StackCounts> counts_of(const CheckpointChoice& choice, const std::vector<std::vector<std::string>>& stacks);

/// The order in which blocks join the checkpointed ones. It gives a number in a family of plans its meaning.
struct CheckpointOrder {
  std::vector<StackCounts> counts;  ///< [number] Each entry contains the one before it and at least one block more.

  bool operator==(const CheckpointOrder&) const = default;
};

/// Orders of a model. In the first order, number k checkpoints the first k blocks of each stack. If a model has several
/// stacks, each may also come first as a whole, and the others follow in turn; then the number counts all blocks. This
/// applies to a stack only if it and at least one other have a tenth of all FLOPs each, because others have little to
/// gain. A model with more than four stacks has the first order only. For a model without stacks, the first order is
/// empty.
std::vector<CheckpointOrder> orders_of(const Model& model);

/// True if all stacks are treated alike, as in the first order.
bool is_alike(const StackCounts& counts, const std::vector<std::vector<std::string>>& stacks);

/// The same for the value of --activation-checkpointing. Errors: those of counts_of(); then the plan stays unchanged.
Result<void> checkpoint(Plan& plan, const Model& model, const CheckpointChoice& choice);

}  // namespace fsdp::planner
