#pragma once

// The keys of TRL's supervised fine-tuning: those of its ScriptArguments, ModelConfig and SFTConfig, which has those of
// transformers' TrainingArguments.

#include <span>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

std::span<const JobKey> trl_sft_keys();

}  // namespace fsdp::planner
