#pragma once

// Rehearses a plan of ours: python/fsdp_plan_runner builds the model of its spec and shards it with the real FSDP2.

#include <string>

#include "runs/given_plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// Charges the communicators of a plan in `settings.nccl` as its prediction does.
void charge_groups(RehearsalSettings& settings, const Given& given);

/// The job file of python/fsdp_plan_runner: {"format_version", "model", "plan", "dimensions", "steps"}.
std::string job_text(const Given& given, std::int64_t steps);

/// Writes the hook's input for a plan that is applied to a script. Error: it cannot be written.
Result<void> write_applied_plan(const std::string& path, const Given& given);

/// Applies a plan to the script of `settings`: writes the hook's input into the rehearsal's folder. Error: it
/// cannot be written.
Result<void> write_applied(RehearsalSettings& settings, const Given& given, const std::string& folder);

/// A Python that has torch: `given` (--python), or the first with torch among FSDP_PLAN_TORCH_PYTHON, the
/// environment that ./scripts/bootstrap makes beside a build tree, and python3 on PATH. Error: there is none.
Result<std::string> find_torch_python(const std::string& given, const RehearsalPlaces& places);

}  // namespace fsdp::runs
