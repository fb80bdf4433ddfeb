#pragma once

// The float8 layers that a TOML of torchtitan 0.2.2 asks for.

#include <optional>

#include "core/plan/float8.h"
#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// Those of the table `quantize.linear.float8`. `nullopt` if it asks for what torchtitan or this program refuses, which
/// is an error of its key then.
std::optional<Float8Training> float8_of_titan(JobKeys& keys);

}  // namespace fsdp::planner
