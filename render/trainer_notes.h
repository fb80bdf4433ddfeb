#pragma once

// The first lines of all trainers' configurations, without comment marks.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "render/trainer_config.h"

namespace fsdp::render {

/// "Llama by plan.json, for accelerate 1.12.0.", the command that starts it, the prediction and the changes.
std::vector<std::string> opening_of(const TrainerConfig& config, const std::string& command);

/// A setting that the script must make beside the file: its subject, and the words.
using Duty = std::pair<std::string, std::string>;

/// A heading and one line for each duty; empty if there are no duties.
std::vector<std::string> lines_of(const std::string& heading, const std::vector<Duty>& duties);

/// Whether accelerate's cpu_ram_efficient_loading does what a plan predicts: the model stays on the meta device
/// until it is sharded, on all processes but one. It fails with persistent buffers, which it cannot send
/// (fsdp2_load_full_state_dict). False for FSDP1.
bool loads_on_first_process(const TrainerConfig& config);

/// "TRL's loss in chunks of trl 1.16.0: loss_type=\"nll\"": a loss, its library and its trainer's key.
std::string words_of_loss(const Loss& loss);

/// "one row of 8192 tokens: SFTConfig(packing=True, ...) of trl 1.16.0, ...". REQUIRES: the plan is packed.
std::string words_of_packing(const Plan& plan);
/// liger_kernel_config of transformers' TrainingArguments: what runs in the plan's model, and nothing else.
std::string liger_config_of(const Plan& plan, const Model& model);
/// The call that converts a model's layers to torchao's Float8Linear; empty if the plan has none.
std::string words_of_float8(const Plan& plan, const Model& model);

/// The call that gives a model Liger's kernels, as its Trainer does; empty if the plan has none.
std::string words_of_liger(const Plan& plan, const Model& model);

/// The BitsAndBytesConfig of a plan's quantized base; empty if it has none.
std::string words_of_quantization(const Plan& plan, const Model& model);

/// Duties about the model and the allocator: the dtype of parameters, frozen parameters, the device of
/// construction.
std::vector<Duty> duties_of_model(const TrainerConfig& config);

/// "torchrun --nproc-per-node 8 train.py" for all nodes, after the plan's environment. `program`: the started
/// program.
std::string torchrun_of(const TrainerConfig& config, std::string_view program);

/// accelerate's name of FSDP1's backward_prefetch: "BACKWARD_PRE".
std::string_view backward_prefetch_of(const Plan& plan);

/// "PYTORCH_ALLOC_CONF=... " with a trailing blank; empty if the plan has no settings.
std::string environment_before(const Plan& plan);

}  // namespace fsdp::render
