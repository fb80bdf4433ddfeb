#pragma once

// Which plans run under torch.autocast as we predict it.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Why the plan's autocast is refused: the framework, the dtype, or an op whose rule under autocast is not known. Empty
/// without autocast.
Errors check_autocast(const Plan& plan, const Model& model);

}  // namespace fsdp
