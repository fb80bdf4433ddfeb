#pragma once

// The keys of axolotl's configuration: those of its schema, and of the plugins in its package.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// Keys of `fsdp_config` stand without the prefix "fsdp_", but for fsdp_version.
std::span<const JobKey> axolotl_keys();

}  // namespace fsdp::planner
