#pragma once

#include <vector>

#include "core/model/model_index.h"

namespace fsdp::executor {

/// Per op of a block, the values that are freed after it: no later op reads them and no caller holds them. The caller
/// of a module's forward holds its arguments until it returns. The block's outputs are not among them; its inputs are,
/// as if the block were part of a longer forward.
std::vector<std::vector<int>> values_to_drop(const Block& block);

/// For each call, the position before which the part of its graph is freed that does not lead to the loss: after the
/// last op that reads a value with that part in its history, and after the call itself at the earliest. `drops`
/// [num blocks] comes from values_to_drop. `is_part` [num calls]: no caller holds the call's inputs, so the op frees
/// them.
std::vector<int> ends_of_unused(const ModelIndex& index, const std::vector<std::vector<std::vector<int>>>& drops,
                                const std::vector<bool>& is_part);

}  // namespace fsdp::executor
