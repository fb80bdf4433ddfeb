#pragma once

// Parts of plans as Python and the line that starts it have them.

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace fsdp::planner {

/// "PYTORCH_ALLOC_CONF=...", as it stands before a command; empty: the plan has no settings.
std::string environment_of(const Plan& plan);

/// "torch.optim.AdamW": the class.
std::string python_optimizer(const Optimizer& optimizer);

/// "lr=..., weight_decay=0.01, fused=True": what is not PyTorch's own default, and the learning rate, which is the
/// user's.
std::string python_optimizer_options(const Optimizer& optimizer);

/// "batch 4, seq 256".
std::string sizes_of(const std::vector<Dimension>& dimensions);

}  // namespace fsdp::planner
