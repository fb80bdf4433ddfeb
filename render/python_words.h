#pragma once

// Parts of plans in the syntax of Python and of the line that starts it.

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace fsdp::render {

/// "PYTORCH_ALLOC_CONF=...", as written before a command; empty if the plan has no settings.
std::string environment_of(const Plan& plan);

/// "torch.optim.AdamW": the class.
std::string python_optimizer(const Optimizer& optimizer);

/// "lr=..., weight_decay=0.01, fused=True": the arguments that differ from PyTorch's defaults, and a placeholder
/// for the user's learning rate.
std::string python_optimizer_options(const Optimizer& optimizer);

/// "batch 4, seq 256".
std::string sizes_of(const std::vector<Dimension>& dimensions);

}  // namespace fsdp::render
