#pragma once

// The precision that nobody chose, on the card that there is.

#include <optional>
#include <string>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"

namespace fsdp::planner {

/// Changes a recipe's bf16 mixed precision into fp16's on a GPU without bf16 units, and says so in a sentence for the
/// report. Nothing: the GPU has them; the plan computes in something else; or its weights are in bf16, for which there
/// is no fp16 in their place: a gradient scaler refuses fp16 gradients. A captured script's own stays, too.
/// REQUIRES: the user chose no precision.
std::optional<std::string> adapt_precision(const ModelSpec& spec, const Gpu& gpu, Plan& plan);

}  // namespace fsdp::planner
