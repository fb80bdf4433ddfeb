#pragma once

// The keys of a plan file that are DeepSpeed's.

#include "core/base/object_fields.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Of the object "zero": reads them, or describes them for the schema.
void zero_fields(Fields& fields, ZeroOptions& zero);

}  // namespace fsdp
