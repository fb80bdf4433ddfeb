#pragma once

// When the forward of a unit runs, and where PyTorch's hooks see it.

#include <vector>

#include "core/model/model_index.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// The passes of a unit's modules, in forward order. `completes_partial`: `Quirks::completes_partial_units`. REQUIRES:
/// its modules, and whether it is the root, are known.
std::vector<Window> windows_of(const ShardedUnit& unit, const ModelIndex& index, bool completes_partial = false);

}  // namespace fsdp
