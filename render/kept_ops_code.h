#pragma once

// The kept ops of selective activation checkpointing, as Python: a policy of torch.utils.checkpoint that knows
// PyTorch's functions, where a plan knows kinds of ops.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::planner {

/// Why a script cannot keep what the plan keeps; empty: it can, or the plan checkpoints no block selectively.
Errors unsaid_of_kept_ops(const Plan& plan, const Model& model);

/// Lines of Python that define `kept_ops()`, the context_fn of such blocks. REQUIRES: unsaid_of_kept_ops is empty.
std::vector<std::string> kept_ops_code(const Plan& plan, const Model& model);

}  // namespace fsdp::planner
