#include "core/plan/execution_limits.h"

#include <fmt/format.h>

#include "core/plan/plan_names.h"

namespace fsdp {

std::optional<Error> refuse_execution(const Plan& plan, bool on_gpus) {
  const Framework framework = plan.runtime.framework;
  const bool is_ddp = framework == Framework::Ddp;
  if (framework == Framework::Fsdp2 || (is_ddp && !on_gpus)) return std::nullopt;
  const auto name = name_of(kFrameworkTable, framework);
  if (is_ddp) {
    return Error{"/runtime/name", fmt::format("fsdp-exec trains plans of {} on CPUs alone.", name),
                 "Add --device cpu, or plan with --runtime fsdp2."};
  }
  return Error{"/runtime/name",
               fmt::format("The plan is of {}, and fsdp-exec runs FSDP2 and, on CPUs, DDP alone.", name),
               "Plan with --runtime fsdp2 or ddp."};
}

}  // namespace fsdp
