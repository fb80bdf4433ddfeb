#pragma once

// The units of experts under expert parallelism.

#include "core/base/result.h"
#include "core/model/model_index.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Marks the units of experts of a layout whose units have their modules. Errors: experts that are not a unit of their
/// own, or stay gathered. REQUIRES: `Mesh::ep` of more than one.
Errors note_experts(Layout& layout, const ModelIndex& index);

}  // namespace fsdp
