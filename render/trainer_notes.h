#pragma once

// The first lines of all trainers' configurations: lines of text, without the marks of a comment.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "render/trainer_config.h"

namespace fsdp::planner {

/// "Llama by plan.json, for accelerate 1.12.0.", the command that starts it, what was predicted and what was changed.
std::vector<std::string> opening_of(const TrainerConfig& config, const std::string& command);

/// A duty of the script beside the file: its subject, and the words.
using Duty = std::pair<std::string, std::string>;

/// A heading and one line for each duty; nothing where there are none.
std::vector<std::string> lines_of(const std::string& heading, const std::vector<Duty>& duties);

/// Whether accelerate's cpu_ram_efficient_loading does what a plan predicts: a model that is on the meta device until
/// it is sharded, on all processes but one. With persistent buffers, which it has no way to send, it fails
/// (fsdp2_load_full_state_dict).
bool loads_on_first_process(const TrainerConfig& config);

/// About the model and the allocator: the dtype of parameters, what is frozen, where it is made.
std::vector<Duty> duties_of_model(const TrainerConfig& config);

/// "torchrun --nproc-per-node 8 train.py", of all nodes, with the plan's environment in front. `program`: what it
/// starts.
std::string torchrun_of(const TrainerConfig& config, std::string_view program);

/// "PYTORCH_ALLOC_CONF=... ", with a blank after it; empty: the plan has no settings.
std::string environment_before(const Plan& plan);

}  // namespace fsdp::planner
