#pragma once

// What to change in a trainer's own files, as one line.

#include <string>

#include "planner/jobs/job_use.h"

namespace fsdp::render {

/// "sft.yaml: micro_batch_size: 1 -> 2, ...: 5.92 s a step (-0.71 s), 45.3 GiB; --diff prints it". If nothing is to
/// change, says so.
std::string use_line(const planner::JobUse& use);

}  // namespace fsdp::render
