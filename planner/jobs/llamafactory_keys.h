#pragma once

// The keys of LLaMA-Factory's configuration.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// The keys of `llamafactory-cli train`.
std::span<const JobKey> llamafactory_keys();

}  // namespace fsdp::planner
