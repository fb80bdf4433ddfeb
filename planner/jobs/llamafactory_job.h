#pragma once

// LLaMA-Factory's training from a YAML file: `llamafactory-cli train FILE`, or its launcher under `accelerate launch`.

#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// LLaMA-Factory's reader. Nothing is changed in its files.
const JobProgram& llamafactory_program();

}  // namespace fsdp::planner
