#pragma once

// The keys of TRL's scripts: those of its ScriptArguments, ModelConfig and SFTConfig or DPOConfig, which have those of
// transformers' TrainingArguments.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// Supervised fine-tuning.
std::span<const JobKey> trl_sft_keys();
/// Direct preference optimization.
std::span<const JobKey> trl_dpo_keys();
/// Those by which a file of direct preference optimization is told from others.
std::span<const JobKey> keys_of_dpo_alone();

}  // namespace fsdp::planner
