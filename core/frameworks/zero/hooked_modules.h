#pragma once

// The modules whose hooks gather parameters under ZeRO-3.

#include <vector>

#include "core/model/model_index.h"
#include "core/plan/mesh.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Each module with a forward, its own parameters and its passes. A parameter that a forward reads from a module around
/// which it does not run counts as its own.
std::vector<ShardedUnit> hooked_modules(const ModelIndex& index, const Mesh& mesh);

}  // namespace fsdp
