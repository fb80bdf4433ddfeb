#pragma once

// axolotl's training from a YAML file: `axolotl train FILE`, or axolotl.cli.train under `accelerate launch`.

#include "core/base/json_document.h"
#include "planner/jobs/job.h"

namespace fsdp::planner {

/// What starts the training.
struct AxolotlLaunch {
  JsonDocument line;         ///< The keys that the line gives, as an object. They count before the file.
  JsonDocument file;         ///< The configuration.
  JsonDocument launch_line;  ///< The arguments of `accelerate launch`, of which the number of processes is read.
};

/// Errors: those of read_job_line.
Result<Job> axolotl_job(AxolotlLaunch launch);

}  // namespace fsdp::planner
