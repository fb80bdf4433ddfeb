// Published recipes train in bf16. GPUs before Ampere compute it without tensor cores: a V100 takes five times as long
// as in fp16. Nobody would train that way, so a prediction in bf16 would describe a run that nobody starts. fp16 mixed
// precision has the same weights, memory and collectives, and also needs a gradient scaler.
//
// Sources: torch/amp/grad_scaler.py (_unscale_grads_: "Attempting to unscale FP16 gradients."), torch 2.11.

#include "planner/space/default_precision.h"

#include <fmt/format.h>

#include "core/cluster/bf16_units.h"

namespace fsdp::planner {

std::optional<std::string> adapt_precision(const ModelSpec& spec, const Gpu& gpu, Plan& plan) {
  const bool lacks_bf16 = gpu.compute_capability > 0 && !gpu.bf16 && gpu.fp16;
  MixedPrecision& precision = plan.mixed_precision;
  const bool is_mixed = plan.parameter_dtype.value_or(spec.dtype) == Dtype::Float32;
  if (!lacks_bf16 || spec.captured != nullptr || !is_mixed || precision.param_dtype != Dtype::BFloat16) {
    return std::nullopt;
  }
  precision.param_dtype = Dtype::Float16;
  return fmt::format("{} {}: fp16 mixed, with a gradient scaler.", gpu.name, kNoBf16Units);
}

}  // namespace fsdp::planner
