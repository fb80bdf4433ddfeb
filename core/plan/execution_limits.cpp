#include "core/plan/execution_limits.h"

#include <fmt/format.h>

#include "core/plan/plan_names.h"

namespace fsdp {

std::optional<Error> refuse_execution(const Plan& plan, bool on_gpus) {
  const Framework framework = plan.runtime.framework;
  if (framework == Framework::Fsdp2) return std::nullopt;
  const auto name = name_of(kFrameworkTable, framework);
  if (framework == Framework::Zero3) {
    return Error{
        "/runtime/name",
        fmt::format("The plan is of {}, and fsdp-exec runs FSDP2 and, on CPUs, FSDP1, DDP, ZeRO-1 and ZeRO-2.", name),
        "Plan with --runtime fsdp2, fsdp1, ddp, zero1 or zero2."};
  }
  if (on_gpus) {
    return Error{"/runtime/name", fmt::format("fsdp-exec trains plans of {} on CPUs alone.", name),
                 "Add --device cpu, or plan with --runtime fsdp2."};
  }
  if (framework == Framework::Fsdp1 && plan.cpu_offload) {
    return Error{"/cpu_offload", "PyTorch's FSDP1 offloads from GPUs alone, and fsdp-exec trains its plans on CPUs.",
                 "Write false, or plan with --runtime fsdp2."};
  }
  if (is_zero(plan) && plan.cpu_offload) {
    return Error{"/cpu_offload", "Of ZeRO fsdp-exec trains what is not offloaded.", "Write false."};
  }
  if (is_zero(plan) && zero_dtype(plan) == Dtype::Float16) {
    return Error{"/mixed_precision", "fsdp-exec scales no loss, as fp16 needs it under ZeRO.",
                 "Write bfloat16 for param_dtype and reduce_dtype."};
  }
  return std::nullopt;
}

}  // namespace fsdp
