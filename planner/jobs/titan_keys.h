#pragma once

// The keys of torchtitan's configurations: of the TOML of 0.2.2, and of the Python configurations of 0.3.0 as
// python/fsdp_torchtitan/read_config.py prints them.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

std::span<const JobKey> titan_toml_keys();

/// Beside the fields of Trainer.Config: "class" is the class of an object where several fit, "model_spec.attention" the
/// kernel of attention, "model_spec.changed" the classes that torchtitan's own model has not.
std::span<const JobKey> titan_config_keys();

}  // namespace fsdp::planner
