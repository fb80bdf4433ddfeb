#pragma once

// The keys of verl's configurations: those of its reinforcement learning (main_ppo) and of its supervised fine-tuning.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// verl.trainer.main_ppo's.
std::span<const JobKey> verl_ppo_keys();
/// verl.trainer.sft_trainer's.
std::span<const JobKey> verl_sft_keys();

}  // namespace fsdp::planner
