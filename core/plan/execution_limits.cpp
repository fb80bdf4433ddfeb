#include "core/plan/execution_limits.h"

#include <fmt/format.h>

#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

void refuse_zero(const Plan& plan, Errors& errors) {
  if (plan.cpu_offload) {
    errors.push_back({"/cpu_offload", "Of ZeRO fsdp-exec trains what is not offloaded.", "Write false."});
  }
  if (zero_dtype(plan) == Dtype::Float16) {
    errors.push_back({"/mixed_precision", "fsdp-exec scales no loss, as fp16 needs it under ZeRO.",
                      "Write bfloat16 for param_dtype and reduce_dtype."});
  }
  if (plan.zero.hpz_partition_size != 1) {
    errors.push_back({"/zero/hpz_partition_size", "fsdp-exec keeps no second copies of parameters.", "Leave it out."});
  }
  if (plan.zero.quantized_weights) {
    errors.push_back({"/zero/quantized_weights", "fsdp-exec quantizes nothing.", "Leave it out."});
  }
  if (plan.zero.quantized_gradients) {
    errors.push_back({"/zero/quantized_gradients", "fsdp-exec quantizes nothing.", "Leave it out."});
  }
}

}  // namespace

Errors refuse_execution(const Plan& plan, bool on_gpus) {
  const Framework framework = plan.runtime.framework;
  Errors errors;
  if (framework == Framework::Fsdp2) return errors;
  const auto name = name_of(kFrameworkTable, framework);
  if (on_gpus) {
    errors.push_back({"/runtime/name", fmt::format("fsdp-exec trains plans of {} on CPUs alone.", name),
                      "Add --device cpu, or plan with --runtime fsdp2."});
  }
  if (framework == Framework::Fsdp1 && plan.cpu_offload) {
    errors.push_back({"/cpu_offload",
                      "PyTorch's FSDP1 offloads from GPUs alone, and fsdp-exec trains its plans on CPUs.",
                      "Write false, or plan with --runtime fsdp2."});
  }
  if (is_zero(plan)) refuse_zero(plan, errors);
  return errors;
}

}  // namespace fsdp
