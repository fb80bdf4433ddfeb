#pragma once

// Which blocks of a model activation checkpointing may take, and how a plan takes the first of them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space.h"

namespace fsdp::planner {

/// [stack][block] Names of the blocks in forward order, each once however often it is called.
std::vector<std::vector<std::string>> blocks_of(const Model& model);

/// Has the first `count` blocks of each stack checkpointed, of a shorter one all, and nothing else.
void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, std::int64_t count,
                      CheckpointMode mode);

/// The same for what --activation-checkpointing asks for.
void checkpoint(Plan& plan, const Model& model, const CheckpointChoice& choice);

}  // namespace fsdp::planner
