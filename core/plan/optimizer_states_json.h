#pragma once

// The key "states" of an optimizer, in plan files and in the recipes of model specs.

#include "core/base/object_fields.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Adds the key to the list, which must have read "kind" before. "8bit" of earlier versions selects the optimizer of
/// bitsandbytes in place of AdamW or Adam.
void optimizer_states_field(Fields& fields, Optimizer& optimizer);

}  // namespace fsdp
