#pragma once

// TRL's scripts for supervised fine-tuning and direct preference optimization: `trl sft` and `trl dpo`, or
// trl/scripts/sft.py and dpo.py under `accelerate launch`.

#include <cstdint>

#include "planner/jobs/job_source.h"

namespace fsdp::planner {

enum class TrlScript : std::uint8_t { Sft, Dpo };

/// The reader and changes of a script.
const JobProgram& trl_program(TrlScript script);

}  // namespace fsdp::planner
