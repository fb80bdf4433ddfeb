#pragma once

// Rehearsing a plan of ours: the model of its spec, built and sharded with the real FSDP2 by python/fsdp_plan_runner.

#include <string>

#include "runs/given_plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// Charges the communicators of a plan as its prediction charges them, in `settings.nccl`.
void charge_groups(RehearsalSettings& settings, const Given& given);

/// The job file of python/fsdp_plan_runner: {"format_version", "model", "plan", "dimensions", "steps"}.
std::string job_text(const Given& given, std::int64_t steps);

/// Writes what the hook reads of a plan that is put into a script. Error: it cannot be written.
Result<void> write_applied_plan(const std::string& path, const Given& given);

/// Puts a plan into the script of `settings`: writes what the hook reads into the rehearsal's folder. Error: it cannot
/// be written.
Result<void> write_applied(RehearsalSettings& settings, const Given& given, const std::string& folder);

/// A Python that has torch: `given` (--python), or the first that does of FSDP_PLAN_TORCH_PYTHON, the environment that
/// ./scripts/bootstrap makes beside a build tree, and python3 on PATH. Error: none does.
Result<std::string> find_torch_python(const std::string& given, const RehearsalPlaces& places);

}  // namespace fsdp::planner
