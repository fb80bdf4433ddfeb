#pragma once

#include <vector>

#include "core/model/model_index.h"

namespace fsdp::executor {

/// Per op of a block the values that go when it has run: those that nobody reads any more and no caller holds. Whoever
/// calls a module's forward holds what it is given until it returns. The block's outputs are not among them; its inputs
/// are, as if the block were part of a longer forward.
std::vector<std::vector<int>> values_to_drop(const Block& block);

/// Per call the call with which the part of its graph goes that does not lead to the loss: that of the last value that
/// is computed with it. `last_use` [num values]: the last call that reads a value; -1: none.
std::vector<int> ends_of_unused(const ModelIndex& index, const std::vector<int>& last_use);

}  // namespace fsdp::executor
