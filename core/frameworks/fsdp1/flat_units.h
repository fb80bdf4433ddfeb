#pragma once

// FSDP1's units: each is one flat parameter. flat_units.cpp says how parameters lie in it.

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Whether FSDP1's strategy for a plan frees units below the root after their forward: FULL_SHARD and HYBRID_SHARD do,
/// SHARD_GRAD_OP and _HYBRID_SHARD_ZERO2 do not. Meaningless for NO_SHARD.
bool reshards_after_forward(const Plan& plan);

/// Errors for settings that FSDP1 cannot express: several modules in a unit, settings that differ between units, a
/// smaller group, FSDP2's prefetches, output_dtype.
Errors check_flat_plan(const Plan& plan, const Model& model);

/// An error if FSDP1's offload loses gradients or is not predicted
/// (`CPUOffload(offload_params=True)`) on this mesh. `adds_up`: each of several micro-batches is reduced.
std::optional<Error> offload_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool adds_up);

/// Whether PyTorch 2.11 fails at the gradient of a parameter where a plan, on this mesh, leaves gradients unreduced.
bool fails_unreduced(const Plan& plan, const Mesh& mesh, const Parameter& parameter);

/// Lays the parameters of a unit out in its flat parameter, and counts its elements. REQUIRES: its parameters and
/// dtypes are there. Errors: parameters that one flat parameter cannot hold.
Errors flatten(ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model, const std::string& where);

/// Errors for passes of the units that are not predicted. REQUIRES: the passes of all units are known.
Errors check_flat_units(const Layout& layout, const Plan& plan, const ModelIndex& index);

}  // namespace fsdp
