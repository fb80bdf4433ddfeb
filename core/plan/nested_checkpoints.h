#pragma once

// Checkpoints inside of the checkpoint of a block: one for each module that the block's own forward calls.
//
// Sources: accelerate/utils/fsdp_utils.py (fsdp2_apply_ac), accelerate 1.13.0, which wraps the children of the classes
// of the policy; axolotl/monkeypatch/accelerate/fsdp2.py (fsdp2_prepare_model), axolotl 0.19.0, which then wraps the
// blocks.

#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"

namespace fsdp {

struct Plan;

/// The ops of a module that is called once by the block's forward.
struct InnerCheckpoint {
  Span ops;
  /// The block passes the arguments by keyword, as blocks of transformers do to `self_attn`. A checkpoint saves what it
  /// is given by position, which the block's own checkpoint drops, and holds what it is given by keyword.
  bool holds_inputs = false;

  bool operator==(const InnerCheckpoint&) const = default;
};

/// In forward order. `nullopt` if the block is not a block of transformers, with an attention `self_attn` that is the
/// only one to read what it is given, or if a module runs twice.
std::optional<std::vector<InnerCheckpoint>> inner_checkpoints(const Block& block);

/// Why nested checkpoints are not predicted under a plan. `nullopt` if they are, or if there are none.
std::optional<Error> nested_checkpoints_misfit(const Plan& plan, const ModelIndex& index);

}  // namespace fsdp
