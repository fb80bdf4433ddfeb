#pragma once

// The keys of NeMo Automodel's recipe that fine-tunes language models.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// Sections whose keys are arguments of a function that the file names, such as `dataset`, have one row.
std::span<const JobKey> automodel_keys();

}  // namespace fsdp::planner
