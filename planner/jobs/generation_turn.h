#pragma once

// The turn of a program that generates, between two steps of a job.

#include "core/report/job_phases.h"
#include "core/report/report.h"
#include "planner/jobs/job.h"

namespace fsdp::planner {

/// What the engine and the resting trainer need together on a GPU. The engine's share is of the whole memory, as vLLM's
/// gpu_memory_utilization is, and has its own context.
JobPhaseNeed generation_turn(const SleepingEngine& engine, const StepReport& report);

}  // namespace fsdp::planner
