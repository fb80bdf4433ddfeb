#pragma once

// Runs of verl: reinforcement learning by main_ppo, of which the update of the actor is planned, and supervised
// fine-tuning by sft_trainer.

#include <span>
#include <string>

#include "core/base/result.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// Whether a line starts one of verl's modules.
bool is_verl_line(std::span<const std::string> words);

/// What such a line asks for. Errors: those of the line.
Result<JobSource> find_verl_line(std::span<const std::string> words);

}  // namespace fsdp::planner
