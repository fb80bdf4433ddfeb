#pragma once

// Rehearsing a plan of ours: the model of its spec, built and sharded with the real FSDP2 by python/fsdp_plan_runner.

#include <string>

#include "planner/cli_plan_file.h"
#include "planner/rehearse_settings.h"

namespace fsdp::planner {

/// The settings of a plan: its machines are those of the rehearsal, and its communicators are charged as the prediction
/// charges them. The command is complete but for the job file, which `job_text` fills. Errors: everything that is wrong
/// with options and installation; no Python with torch.
Result<RehearsalSettings> read_plan_rehearsal(const CommandLine& line, const Given& given,
                                              const RehearsalPlaces& places);

/// What python/fsdp_plan_runner reads: {"format_version", "model", "plan", "dimensions", "steps"}.
std::string job_text(const Given& given, std::int64_t steps);

/// A Python that has torch: `given` (--python), or the first that does of FSDP_PLAN_TORCH_PYTHON, the environment that
/// ./scripts/bootstrap makes beside a build tree, and python3 on PATH. Error: none does.
Result<std::string> find_torch_python(const std::string& given, const RehearsalPlaces& places);

}  // namespace fsdp::planner
