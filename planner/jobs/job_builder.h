#pragma once

// What several programs' configurations have in common: words of a job, and what Hugging Face's names mean.

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_keys.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// Adds a word.
inline void say(Job& job, PlanChoice choice, std::string text, std::string where) {
  job.words.push_back({choice, std::move(text), std::move(where)});
}

/// TrainingArguments.optim at `key`, or `unset`: the optimizer and its implementation. Errors: an optimizer that is not
/// predicted, with those that are.
void say_optimizer(JobKeys& keys, std::string_view key, std::string_view unset, Job& job);

/// The processes and machines of a launch configuration, if it counts them.
void say_machines(JobKeys& keys, Job& job);

/// accelerate's launch configuration: processes, machines and its `fsdp_config`.
struct AccelerateJob {
  bool is_fsdp2 = false;
  bool checkpoints = false;  ///< fsdp_activation_checkpointing.
  std::string precision;     ///< mixed_precision; empty if it is unset: "no", "fp16", "bf16" or "fp8".
};

/// Reads the keys of a launch configuration, and says what it makes of the machines and the plan.
AccelerateJob say_accelerate(JobKeys& keys, Job& job);

/// The keys of `accelerate launch --config_file`.
std::span<const JobKey> accelerate_keys();
/// What can be changed in it.
std::span<const KeyChange> accelerate_changes();

}  // namespace fsdp::planner
