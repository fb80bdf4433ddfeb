#pragma once

// A plan as the configuration of a program that trains models: what a user hands to that program.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

struct TrainerConfig {
  const TrainerRelease& release;
  const SaidPlan& said;
  const Model& model;
  const Cluster& cluster;
  std::string source;  ///< Where the plan is from: "plan.json".
};

/// "1.24 GiB on each GPU, 2.54 ms a step"; where it does not fit, that too.
std::string predicted_of(const StepReport& report);

/// YAML for accelerate launch --config_file; Python that makes TrainingArguments; a configuration of torchtitan in
/// Python, or TOML; JSON for DeepSpeed. All but the last begin with what the file cannot say, and the script must.
std::string to_text(const TrainerConfig& config);

/// The same of a file that has no room for it, one sentence each; empty: the file has it.
std::vector<std::string> notes_beside(const TrainerConfig& config);

/// Each of them, and what is said beside the last.
std::string accelerate_yaml(const TrainerConfig& config);
std::string trainer_python(const TrainerConfig& config);
std::string torchtitan_toml(const TrainerConfig& config);
std::string torchtitan_registry(const TrainerConfig& config);
std::string deepspeed_json(const TrainerConfig& config);
std::vector<std::string> deepspeed_notes(const TrainerConfig& config);

}  // namespace fsdp::planner
