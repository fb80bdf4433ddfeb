#pragma once

// The default precision on a given GPU.

#include <optional>
#include <string>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"

namespace fsdp::planner {

/// Changes a recipe's bf16 mixed precision to fp16's on a GPU without bf16 units. Returns a sentence about that for the
/// report. `nullopt` if the GPU has such units, if the plan computes in another dtype, or if its weights are in bf16:
/// fp16 cannot replace it there, because a gradient scaler refuses fp16 gradients. A captured script keeps its own
/// precision. REQUIRES: the user chose no precision.
std::optional<std::string> adapt_precision(const ModelSpec& spec, const Gpu& gpu, Plan& plan);

}  // namespace fsdp::planner
