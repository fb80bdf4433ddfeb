#pragma once

// The adapters of an axolotl configuration.

#include "planner/jobs/axolotl_fsdp.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// Whether `adapter` is set.
bool has_adapters(const JobKeys& keys);

/// Says the adapters and the base below them; refuses what is not predicted. Without `adapter`: notes that their keys
/// are ignored.
void say_adapters(JobKeys& keys, AxolotlFsdp fsdp, Job& job);

}  // namespace fsdp::planner
