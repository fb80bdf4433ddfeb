#pragma once

#include <vector>

#include "core/model.h"

namespace fsdp::executor {

/// Per op of a block the values that go when it has run: those that nobody reads any more and no caller holds. Whoever
/// calls a module's forward holds what it is given until it returns. The block's outputs are not among them; its inputs
/// are, as if the block were part of a longer forward.
std::vector<std::vector<int>> values_to_drop(const Block& block);

}  // namespace fsdp::executor
