#pragma once

// The keys of transformers' TrainingArguments, which the configurations of several programs extend.

#include <span>
#include <vector>

#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

/// The keys of a program, and those of TrainingArguments about which its own table says nothing else.
std::vector<JobKey> with_trainer_keys(std::span<const JobKey> own);

}  // namespace fsdp::planner
