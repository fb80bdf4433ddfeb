#include "core/plan/execution_limits.h"

#include <fmt/format.h>

#include "core/plan/plan_names.h"

namespace fsdp {

std::optional<Error> refuse_execution(const Plan& plan, bool on_gpus) {
  const Framework framework = plan.runtime.framework;
  if (framework == Framework::Fsdp2) return std::nullopt;
  const auto name = name_of(kFrameworkTable, framework);
  if (framework != Framework::Ddp && framework != Framework::Fsdp1) {
    return Error{"/runtime/name",
                 fmt::format("The plan is of {}, and fsdp-exec runs FSDP2 and, on CPUs, FSDP1 and DDP alone.", name),
                 "Plan with --runtime fsdp2, fsdp1 or ddp."};
  }
  if (on_gpus) {
    return Error{"/runtime/name", fmt::format("fsdp-exec trains plans of {} on CPUs alone.", name),
                 "Add --device cpu, or plan with --runtime fsdp2."};
  }
  if (framework == Framework::Fsdp1 && plan.cpu_offload) {
    return Error{"/cpu_offload", "PyTorch's FSDP1 offloads from GPUs alone, and fsdp-exec trains its plans on CPUs.",
                 "Write false, or plan with --runtime fsdp2."};
  }
  return std::nullopt;
}

}  // namespace fsdp
