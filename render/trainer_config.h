#pragma once

// A plan as the configuration of a training program.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "planner/trainers/trainers.h"

namespace fsdp::render {

struct TrainerConfig {
  const planner::TrainerRelease& release;
  const planner::SaidPlan& said;
  const Model& model;
  const Cluster& cluster;
  std::string source;  ///< The file of the plan: "plan.json".
};

/// "1.24 GiB on each GPU, 2.54 ms a step"; also that it does not fit, if so.
std::string predicted_of(const StepReport& report);

/// YAML for accelerate launch --config_file; Python that makes TrainingArguments; a torchtitan configuration in
/// Python or TOML; JSON for DeepSpeed. All but the last begin with the settings that the script must make.
std::string to_text(const TrainerConfig& config);

/// Those settings for a file format without comments, one sentence each; empty if the file has them.
std::vector<std::string> notes_beside(const TrainerConfig& config);

/// The text for each trainer, and the notes of the last.
std::string accelerate_yaml(const TrainerConfig& config);
std::string trainer_python(const TrainerConfig& config);
std::string torchtitan_toml(const TrainerConfig& config);
std::string torchtitan_registry(const TrainerConfig& config);
std::string deepspeed_json(const TrainerConfig& config);
std::vector<std::string> deepspeed_notes(const TrainerConfig& config);

}  // namespace fsdp::render
