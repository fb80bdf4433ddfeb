#pragma once

// From a plan to its layout.

#include <cstdint>

#include "core/base/result.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Forms the units of a plan, as seen from one rank of a shard group. Errors: all errors of the plan for this model:
/// unknown modules, modules without a forward of their own, no root, an outer unit before one inside it, ties across
/// units, trainable parameters of several dtypes in one unit, an integer reshard that does not divide, bad sizes.
/// Source: torch/distributed/fsdp/_fully_shard/_fsdp_init.py, _fsdp_param.py.
Result<Layout> make_layout(const ModelIndex& index, const Plan& plan, std::int64_t rank = 0);

/// Sets the reshard_after_forward and the mesh of a plan in a layout, as make_layout would. REQUIRES: the layout's plan
/// has the same modules in each unit, the same shard size and the same dtypes. Errors: those of make_layout that are
/// still possible: bad sizes, an integer reshard that does not divide.
Errors reshard_as(Layout& layout, const ModelIndex& index, const Plan& plan);

/// The same layout, seen from another rank of the shard group.
void see_from(Layout& layout, std::int64_t rank);

/// The ranks of the shard group with different numbers of true elements, rising from 0. Each represents itself and the
/// ranks up to the next one, which hold the same. There is one if all rows divide, and there are always few, because a
/// parameter has full shards, then perhaps a cut one, then empty ones.
std::vector<std::int64_t> different_ranks(const Layout& layout);

}  // namespace fsdp
