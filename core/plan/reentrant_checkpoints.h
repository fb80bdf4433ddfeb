#pragma once

// Reentrant checkpoints of blocks: torch.utils.checkpoint with use_reentrant=True, as transformers' blocks call it.
//
//   forward    without a graph; the block keeps its inputs
//   backward   the block runs again to its end, with a graph, and then has a backward of its own. Meanwhile the node
//              holds the block's output and the gradient of it
//
// The checkpoint of a transformers block is around the hooks of the block's module
// (GradientCheckpointingLayer.__call__). So a unit of FSDP2 is entered and left when the block runs again, as in a
// forward, and its hooks of the backward come after that. A unit of FSDP1 is a module around the block, whose hooks are
// outside.
//
// Sources: torch/utils/checkpoint.py (CheckpointFunction), torch/distributed/fsdp/_fully_shard/_fsdp_state.py,
// torch 2.11; transformers/modeling_layers.py, transformers 5.24.
//
// Not modeled: in the time of FSDP2, the gather of the next unit begins with what runs again, and not after it.

#include <optional>

#include "core/base/result.h"
#include "core/model/model_index.h"

namespace fsdp {

struct Plan;

/// Why reentrant checkpoints are not predicted under a plan. `nullopt` if they are, or if there are none.
std::optional<Error> reentrant_checkpoints_misfit(const Plan& plan, const ModelIndex& index);

}  // namespace fsdp
