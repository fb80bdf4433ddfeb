// `mixed_precision: bf16` makes accelerate set FSDP's policy, and wrap what it prepares:
//
//   FSDP2        bf16 for gathered parameters, reductions and outputs of units. Its model does not pass through
//                prepare_model, so there is no autocast, and outputs stay as they are
//   FSDP1        bf16 for gathered parameters, reductions and buffers; below FSDP1's wrapper prepare_model has put
//                the forward under torch.autocast and copies the outputs to fp32
//   DDP, 1 GPU   the latter alone
//
// transformers' Trainer (bf16=True), TRL, axolotl and LLaMA-Factory prepare their models with accelerate.
//
// Sources: accelerate 1.15.0 and 1.12.0, accelerator.py (prepare, _prepare_fsdp2, prepare_model), utils/dataclasses.py
// (FullyShardedDataParallelPlugin.set_mixed_precision), utils/operations.py (convert_outputs_to_fp32).
//
// Not modeled: accelerator.autocast() in a loop of one's own, which also acts under FSDP2 (--precision autocast).

#include "planner/space/chosen_precision.h"

#include "core/plan/framework_traits.h"

namespace fsdp::planner {

void mix_as_accelerate(Plan& plan, Framework framework) {
  const FrameworkTraits& traits = traits_of(framework);
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {};
  if (traits.precision == PrecisionRule::Policy) {
    plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::BFloat16};
    // FSDP1's MixedPrecision casts the inputs of its root alone by default.
    plan.mixed_precision.cast_forward_inputs = !traits.has_flat_parameters;
    if (traits.has_flat_parameters) {
      plan.fsdp1.buffer_dtype = Dtype::BFloat16;
    } else {
      plan.mixed_precision.output_dtype = Dtype::BFloat16;
    }
  }
  if (!traits.is_wrapper) return;
  plan.mixed_precision.autocast = Dtype::BFloat16;
  plan.mixed_precision.float_outputs = true;
}

bool is_mixed_as_accelerate(const Plan& plan) {
  Plan mixed = plan;
  mix_as_accelerate(mixed, plan.runtime.framework);
  return mixed.mixed_precision == plan.mixed_precision && mixed.fsdp1 == plan.fsdp1;
}

void set_precision(Plan& plan, Precision precision, Framework framework) {
  plan.fsdp1.buffer_dtype.reset();
  const auto all_in = [&](Dtype dtype) {
    plan.parameter_dtype = dtype;
    plan.mixed_precision = {};
  };
  const auto mixed_in = [&](Dtype dtype) {
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.param_dtype = dtype, .reduce_dtype = Dtype::Float32};
  };
  switch (precision) {
    case Precision::BFloat16:
      return all_in(Dtype::BFloat16);
    case Precision::Float16:
      return all_in(Dtype::Float16);
    case Precision::Float32:
      return all_in(Dtype::Float32);
    case Precision::Mixed:
      return mixed_in(Dtype::BFloat16);
    case Precision::MixedFloat16:
      return mixed_in(Dtype::Float16);
    case Precision::Autocast:
      plan.parameter_dtype = Dtype::Float32;
      plan.mixed_precision = {};
      if (traits_of(framework).precision == PrecisionRule::Policy) mixed_in(Dtype::BFloat16);
      plan.mixed_precision.autocast = Dtype::BFloat16;
      return;
    case Precision::Accelerate:
      return mix_as_accelerate(plan, framework);
  }
}

}  // namespace fsdp::planner
