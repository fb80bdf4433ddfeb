#pragma once

// Explains why a rehearsal has no result.

#include <optional>
#include <string>

#include "core/base/result.h"
#include "runs/rehearse_run.h"

namespace fsdp::runs {

/// The failure of a process without a result, with advice: a script that raised, hung or crashed, that needs the
/// network, another torch or a torch with CUDA, or that never used a GPU. REQUIRES: no result.
Errors explain_failure(const RankRun& run, const RehearsalSettings& settings);

/// Why a plan was not applied to the script (python/fsdp_rehearsal/apply_plan.py), reason by reason; `nullopt` if
/// the process ended for another cause.
std::optional<Errors> why_not_applied(const RehearsalRecord& record);

/// Whether python/fsdp_plan_runner refused a plan. It prints every reason.
bool is_refused_plan(const RankRun& run);

/// The last output of the process: the traceback of the exception that ended it, otherwise its last lines.
std::string kept_output(const RankRun& run);

/// Whether a result is worth reporting. False, with an explanation in `errors`, if nothing touched a GPU.
bool used_the_gpu(const RankRun& run, Errors& errors);

}  // namespace fsdp::runs
