#pragma once

// TRL's script for supervised fine-tuning: `trl sft`, or trl/scripts/sft.py under `accelerate launch`.

#include <optional>

#include "core/base/json_document.h"
#include "planner/jobs/job.h"

namespace fsdp::planner {

/// What starts the script.
struct TrlLaunch {
  JsonDocument line;                     ///< The arguments on the line, as an object.
  std::optional<JsonDocument> file;      ///< --config.
  JsonDocument launch_line;              ///< Those of `accelerate launch`.
  std::optional<JsonDocument> launcher;  ///< --config_file. Without one, accelerate has its defaults.
};

/// Errors: those of read_job_line.
Result<Job> trl_job(const TrlLaunch& launch);

}  // namespace fsdp::planner
