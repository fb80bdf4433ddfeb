// The precisions that accelerate's `mixed_precision` can express: planner/space/chosen_precision.cpp says what it sets.
// It also converts trained parameters to float32.

#include <fmt/core.h>

#include <optional>
#include <string>

#include "planner/space/chosen_precision.h"
#include "planner/trainers/trainer_limits.h"

namespace fsdp::planner {

std::optional<Error> other_precision(const Plan& plan, const Model& model) {
  const MixedPrecision& given = plan.mixed_precision;
  if (!given.param_dtype && !given.reduce_dtype && !given.output_dtype) return std::nullopt;
  if (!given.param_dtype) {
    return Error{"/mixed_precision", "Gradients or outputs have a dtype of their own, and parameters have none.",
                 "Plan with --precision bf16 or fp32, without --reduce-dtype."};
  }
  if (given.autocast) {
    return Error{"/mixed_precision/autocast", "accelerate runs no torch.autocast around a model of FSDP2.",
                 "Plan with --precision accelerate."};
  }
  const std::string_view name = name_of(*given.param_dtype);
  if (given.param_dtype == Dtype::Float16) {
    return Error{"/mixed_precision", "If accelerate computes in float16, it scales the loss, which no plan models.",
                 "Plan with --precision bf16 or fp32."};
  }
  if (given.reduce_dtype != given.param_dtype || given.output_dtype != given.param_dtype) {
    return Error{
        "/mixed_precision",
        fmt::format(
            "accelerate also reduces gradients in {0} if it computes in {0}, and casts the units' outputs to it.",
            name),
        fmt::format("Write \"reduce_dtype\": \"{0}\" and \"output_dtype\": \"{0}\" into the plan.", name)};
  }
  if (dtype_of_shards(plan, model) != Dtype::Float32) {
    return Error{"/parameter_dtype", fmt::format("If accelerate computes in {}, it trains float32 parameters.", name),
                 "Write \"float32\" into the plan."};
  }
  return std::nullopt;
}

void mix_units_alike(Plan& plan, const Model&) {
  const std::optional<Dtype> compute = plan.mixed_precision.param_dtype;
  if (compute == Dtype::Float16) return;
  plan.mixed_precision = {compute, compute, compute};
  if (compute) plan.parameter_dtype = Dtype::Float32;
}

std::optional<Error> other_flat_precision(const Plan& plan, const Model& model) {
  const MixedPrecision& given = plan.mixed_precision;
  if (!given.param_dtype && !given.reduce_dtype && !given.autocast && !plan.fsdp1.buffer_dtype) return std::nullopt;
  if (given.param_dtype != Dtype::BFloat16 || !is_mixed_as_accelerate(plan)) {
    return Error{"/mixed_precision",
                 "Under FSDP1 accelerate computes, reduces and keeps buffers in bfloat16, under torch.autocast, and "
                 "copies the logits to float32; or it does none of that.",
                 "Plan with --precision accelerate, bf16 or fp32, or write --to fsdp1."};
  }
  if (dtype_of_shards(plan, model) == Dtype::Float32) return std::nullopt;
  return Error{"/parameter_dtype", "If accelerate computes in bfloat16, it trains float32 parameters.",
               "Write \"float32\" into the plan."};
}

void mix_flat_units(Plan& plan, const Model&) {
  if (plan.mixed_precision.param_dtype != Dtype::Float16) mix_as_accelerate(plan, plan.runtime.framework);
}

// Up to 1.12 the whole model becomes float32 after it is sharded, its frozen parameters, too (accelerate#3848).
std::optional<Error> frozen_upcast(const Plan& plan, const Model& model) {
  if (!plan.mixed_precision.param_dtype) return std::nullopt;
  for (const Parameter& parameter : model.parameters) {
    const bool grows = !parameter.trainable && is_floating_point(parameter.dtype) && parameter.dtype != Dtype::Float32;
    if (!grows) continue;
    return Error{"/mixed_precision",
                 fmt::format("accelerate 1.12 converts frozen parameters to float32 as well; \"{}\" is {}.",
                             parameter.name, name_of(parameter.dtype)),
                 "Use accelerate 1.13 or later, which converts trained ones alone; or plan with --precision bf16."};
  }
  return std::nullopt;
}

}  // namespace fsdp::planner
