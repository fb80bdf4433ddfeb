// Sources: trl 1.16.0, trainer/sft_config.py, dpo_config.py, base_config.py, model_config.py, scripts/utils.py
// (ScriptArguments, DatasetMixtureConfig).

#include "planner/jobs/trl_keys.h"

#include <iterator>
#include <vector>

#include "planner/jobs/trainer_keys.h"

namespace fsdp::planner {

namespace {

using enum KeyMeaning;

/// Keys of both scripts.
constexpr JobKey kTrlKeys[] = {
    // The script and its data.
    {"dataset_name"},
    {"dataset_config"},
    {"dataset_train_split"},
    {"dataset_test_split"},
    {"dataset_streaming"},
    {"datasets"},
    {"streaming"},
    {"test_split_size"},
    {"ignore_bias_buffers"},
    {"dataset_num_proc"},
    {"pad_token"},
    {"truncation_mode"},
    {"env"},
    {"accelerate_config", Read},
    // The model.
    {"model_name_or_path", Read},
    {"model_revision"},
    {"trust_remote_code"},
    {"dtype", Read},
    {"attn_implementation", Read},
    {"model_init_kwargs", Usual, "", "other arguments of from_pretrained"},
    {"router_aux_loss_coef", Usual, "", "another coefficient of the router's loss"},
    {"use_peft", Read},
    {"lora_r", Read},
    {"lora_alpha", Read},
    {"lora_dropout", Read},
    {"lora_target_modules", Read},
    {"lora_target_parameters", Usual, "", "adapters of experts"},
    {"lora_modules_to_save", Read},
    {"lora_task_type", Usual, "CAUSAL_LM", "another task than language modeling"},
    {"use_rslora"},
    {"use_dora", Usual, "false", "DoRA"},
    {"load_in_8bit", Usual, "false", "a base in eight bits"},
    {"load_in_4bit", Read},
    {"bnb_4bit_quant_type", Read},
    {"use_bnb_nested_quant", Read},
    {"bnb_4bit_quant_storage", Read},
    // The batch.
    {"max_length", Read},
    {"padding_free", Read},
    {"pad_to_multiple_of", Read},
    // The step.
    {"activation_offloading", Usual, "false", "activations in host memory"},
};

constexpr JobKey kSftKeys[] = {
    {"dataset_text_field"},
    {"dataset_kwargs"},
    {"eos_token"},
    {"chat_template_path"},
    {"shuffle_dataset"},
    {"completion_only_loss", Read},
    {"assistant_only_loss", Read},
    {"packing", Read},
    {"packing_strategy", Read},
    {"eval_packing"},
    {"loss_type", Read},
};

constexpr JobKey kDpoKeys[] = {
    {"loss_type"},
    {"loss_weights"},
    {"disable_dropout", Read},
    {"precompute_ref_log_probs", Read},
    {"precompute_ref_batch_size"},
    {"ld_alpha", Usual, "", "LD-DPO"},
    {"f_divergence_type"},
    {"f_alpha_divergence_coef"},
    {"label_smoothing"},
    {"beta"},
    {"use_weighting", Usual, "false", "weighted pairs"},
    {"discopop_tau"},
    {"sync_ref_model", Usual, "false", "a reference that is updated"},
    {"ref_model_mixup_alpha"},
    {"ref_model_sync_steps"},
};

std::vector<JobKey> with_script_keys(std::span<const JobKey> own) {
  std::vector<JobKey> all(own.begin(), own.end());
  all.insert(all.end(), std::begin(kTrlKeys), std::end(kTrlKeys));
  return with_trainer_keys(all);
}

}  // namespace

std::span<const JobKey> trl_sft_keys() {
  static const std::vector<JobKey> kAll = with_script_keys(kSftKeys);
  return kAll;
}

std::span<const JobKey> trl_dpo_keys() {
  static const std::vector<JobKey> kAll = with_script_keys(kDpoKeys);
  return kAll;
}

std::span<const JobKey> keys_of_dpo_alone() {
  return std::span(kDpoKeys).subspan(1);
}

}  // namespace fsdp::planner
