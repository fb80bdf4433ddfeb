#pragma once

// The policy of selective activation checkpointing as Python: torch.utils.checkpoint names PyTorch's functions, a
// plan names kinds of ops.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::render {

/// Why a script cannot save the plan's ops; empty if it can, or if the plan checkpoints no block selectively.
Errors unsaid_of_kept_ops(const Plan& plan, const Model& model);

/// Lines of Python that define `kept_ops()`, the context_fn of such blocks. REQUIRES: unsaid_of_kept_ops is empty.
std::vector<std::string> kept_ops_code(const Plan& plan, const Model& model);

}  // namespace fsdp::render
