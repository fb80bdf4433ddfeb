#pragma once

// Rehearsing a plan of ours: the model of its spec, built and sharded with the real FSDP2 by python/fsdp_plan_runner.

#include <string>

#include "runs/given_plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// Charges the communicators of a plan as its prediction charges them, in `settings.nccl`.
void charge_groups(RehearsalSettings& settings, const Given& given);

/// What python/fsdp_plan_runner reads: {"format_version", "model", "plan", "dimensions", "steps"}.
std::string job_text(const Given& given, std::int64_t steps);

/// What the hook in Python reads to put a plan into a script: the object of a plan file.
std::string applied_text(const Given& given);

/// A Python that has torch: `given` (--python), or the first that does of FSDP_PLAN_TORCH_PYTHON, the environment that
/// ./scripts/bootstrap makes beside a build tree, and python3 on PATH. Error: none does.
Result<std::string> find_torch_python(const std::string& given, const RehearsalPlaces& places);

}  // namespace fsdp::planner
