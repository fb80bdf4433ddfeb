#include "planner/check/rules.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace fsdp::planner {

namespace {

constexpr std::string_view kAccelerate = "accelerate 1.15.0";
constexpr std::string_view kTransformers = "transformers 5.24.0";
constexpr std::string_view kAxolotl = "axolotl 0.19.0";
constexpr std::string_view kTrl = "TRL 1.16.0";
constexpr std::string_view kDeepSpeedRelease = "DeepSpeed 0.19.8";
constexpr std::string_view kTorch = "PyTorch 2.11";

constexpr Rule kRules[] = {
    // Names and values.
    {"unknown-key", "The program does not know a key.", kAccelerate, "commands/config/config_args.py: from_yaml_file",
     find_unknown_keys},
    {"renamed-key", "A key has another name now.", kTransformers, "training_args.py: TrainingArguments",
     find_renamed_keys},
    {"invalid-value", "A value is none that accelerate knows.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin", find_invalid_values},
    // The launch.
    {"launch-key-missing", "accelerate cannot launch without a key.", kAccelerate,
     "commands/launch.py: _validate_launch_command", find_missing_launch_keys},
    {"unquoted-no", "no without quotes is false.", kAccelerate, "utils/launch.py: prepare_multi_gpu_env",
     find_unquoted_no},
    {"section-unused", "fsdp_config or deepspeed_config beside another distributed_type.", kAccelerate,
     "commands/launch.py: _validate_launch_command", find_unused_sections},
    {"processes-uneven", "num_processes is no multiple of num_machines.", kAccelerate,
     "utils/launch.py: prepare_multi_gpu_env", find_uneven_processes},
    {"gpu-ids-few", "gpu_ids has fewer GPUs than a machine has processes.", kAccelerate,
     "utils/launch.py: prepare_multi_gpu_env", find_few_gpu_ids},
    {"mesh-size", "The sizes of parallelism_config do not multiply to num_processes.", kAccelerate,
     "parallelism_config.py: _validate_accelerator", find_mesh_mismatch},
    {"mesh-without-shard", "parallelism_config has no axis for FSDP2.", kAccelerate,
     "parallelism_config.py: _validate_accelerator", find_mesh_without_shard},
    // Versions of FSDP.
    {"fsdp-version-missing", "fsdp_config without fsdp_version runs FSDP1.", kAccelerate,
     "commands/launch.py: launch_command_parser; huggingface/accelerate#3394", find_missing_version},
    {"fsdp2-ignores-key", "FSDP2 ignores keys of FSDP1.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin; huggingface/accelerate#3394", find_keys_of_version_1},
    {"fsdp2-reshard-value", "FSDP2 takes no strategy as fsdp_reshard_after_forward.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin", find_reshard_of_version_1},
    {"fsdp1-ignores-reshard", "FSDP1 under accelerate launch ignores fsdp_reshard_after_forward.", kAccelerate,
     "utils/launch.py: prepare_multi_gpu_env; accelerator.py: prepare_model", find_reshard_that_is_ignored},
    {"sync-module-states-off", "fsdp_sync_module_states: false with RAM-efficient loading.", kAccelerate,
     "utils/launch.py: prepare_multi_gpu_env", find_sync_module_states_off},
    {"checkpoint-offload-alone", "Offloaded checkpoints without checkpoints, or under FSDP1.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin", find_checkpoint_offload_alone},
    {"local-state-dict", "FSDP2 has no LOCAL_STATE_DICT.", kAccelerate, "utils/dataclasses.py: set_state_dict_type",
     find_local_state_dict},
    {"hybrid-on-one-node", "HYBRID_SHARD on one machine.", kTorch,
     "distributed/fsdp/_init_utils.py: _init_intra_and_inter_node_groups", find_hybrid_on_one_node},
    {"trainer-fsdp-off", "The Trainer's fsdp_config without fsdp.", kTransformers,
     "training_args.py: _process_fsdp_args", find_trainer_fsdp_off},
    {"trainer-fsdp-text", "The Trainer's fsdp as words.", kTransformers,
     "training_args.py: _apply_legacy_fsdp_to_config", find_trainer_fsdp_text},
    // Units.
    {"wraps-root-only", "No unit below the root.", kAccelerate, "utils/dataclasses.py: set_auto_wrap_policy",
     find_root_only},
    {"wrap-class-unused", "Classes beside another policy.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin", find_unused_classes},
    {"wrap-class-list", "Classes as a YAML list or with blanks.", kAccelerate,
     "utils/dataclasses.py: FullyShardedDataParallelPlugin", find_class_lists},
    {"wrap-class-unknown", "A class that the model does not have.", kAccelerate,
     "utils/dataclasses.py: set_auto_wrap_policy", find_unknown_classes},
    // Memory.
    {"every-rank-loads", "Each process loads the whole model.", kTransformers,
     "huggingface/transformers#25107, #43749 and #45649", find_every_rank_loads},
    {"parameters-stay-gathered", "Parameters stay gathered between forward and backward.", kTorch,
     "distributed/fsdp/_fully_shard/_fully_shard.py: reshard_after_forward", find_gathered_parameters},
    {"gradients-unreduced", "Accumulation holds whole gradients.", kTransformers,
     "trainer.py: _run_epoch; accelerate 1.15.0, accelerator.py: no_sync", find_unsharded_gradients},
    {"full-state-dict", "Checkpoints gather a large model in one process.", kAccelerate,
     "utils/dataclasses.py: set_state_dict_type", find_full_state_dict},
    {"float32-base", "A frozen base in float32.", kTrl, "trainer/model_config.py: ModelConfig.dtype",
     find_float32_base},
    {"packing-with-mask", "Packing without kernels for documents.", kTransformers,
     "masking_utils.py: find_packed_sequence_indices", find_packing_with_mask},
    {"quantized-base-whole", "Four-bit weights as integers under FSDP2.", kAccelerate,
     "utils/fsdp_utils.py: fsdp2_prepare_model", find_whole_quantized_base},
    {"quantized-dtypes", "Four-bit weights in another dtype under FSDP1.", kTorch,
     "distributed/fsdp/_flat_param.py: _validate_tensors_to_flatten", find_mixed_quantized_dtypes},
    // The Trainer.
    {"checkpoints-twice", "Checkpoints of FSDP beside the Trainer's.", kTransformers,
     "trainer.py: create_accelerator_and_postprocess", find_two_checkpointings},
    {"optimizer-on-dtensors", "An optimizer that fails under FSDP2.", kTransformers,
     "core/plan/optimizer_table.h; bitsandbytes-foundation/bitsandbytes#1633 and #89",
     find_optimizers_without_dtensors},
    {"fp16-and-bf16", "fp16 beside bf16.", kTransformers, "training_args.py: _validate_args", find_fp16_and_bf16},
    {"precision-overridden", "mixed_precision and the Trainer disagree.", kTransformers,
     "training_args.py: __post_init__ (mixed_precision)", find_overridden_precision},
    {"save-only-model", "save_only_model with what it excludes.", kTransformers,
     "trainer.py: create_accelerator_and_postprocess", find_save_only_model},
    {"best-model-strategy", "load_best_model_at_end without matching strategies.", kTransformers,
     "training_args.py: _validate_args", find_best_model_strategies},
    {"auto-batch-zero3", "auto_find_batch_size under ZeRO-3.", kTransformers,
     "trainer.py: create_accelerator_and_postprocess", find_auto_batch_under_zero3},
    {"quantized-without-adapters", "A quantized model without adapters.", kTransformers,
     "trainer_utils.py: validate_quantization_for_training", find_quantized_without_adapters},
    // TRL.
    {"padding-free-unbounded", "padding_free without packing.", kTrl, "trainer/sft_trainer.py: SFTTrainer.__init__",
     find_unbounded_padding_free},
    {"loss-refused", "A loss that TRL does not have, or renamed.", kTrl, "trainer/sft_trainer.py: SFTTrainer.__init__",
     find_refused_losses},
    {"liger-loss", "Liger's loss beside TRL's.", kTrl, "trainer/sft_trainer.py: SFTTrainer.__init__", find_liger_loss},
    {"selective-checkpoints", "Selective checkpoints with what they exclude.", kTrl,
     "trainer/sft_trainer.py: SFTTrainer.__init__", find_selective_checkpointing},
    {"reentrant-forced", "use_reentrant: false with adapters under ZeRO-3.", kTrl,
     "trainer/sft_trainer.py: SFTTrainer.__init__; huggingface/trl#2514", find_forced_reentrant},
    {"packing-context-parallel", "Packing under context parallelism.", kTrl,
     "trainer/sft_trainer.py: SFTTrainer.__init__", find_packing_under_context_parallel},
    {"adapter-on-head", "Adapters on lm_head.", kTrl, "trainer/sft_trainer.py: SFTTrainer.__init__",
     find_adapter_on_head},
    // axolotl.
    {"axolotl-unknown-key", "A key that axolotl does not have.", kAxolotl,
     "utils/schemas/config.py: AxolotlInputConfig", find_unknown_axolotl_keys},
    {"axolotl-version-1", "axolotl's FSDP1, the default.", kAxolotl, "utils/schemas/validation.py: check_fsdp_version",
     find_axolotl_version_1},
    {"axolotl-ignored-key", "Keys of FSDP1 under fsdp_version: 2.", kAxolotl, "utils/schemas/fsdp.py: FSDPConfig",
     find_axolotl_keys_of_version_1},
    {"axolotl-wrap", "No class to wrap, or one that the model does not have.", "accelerate 1.13.0",
     "utils/dataclasses.py: set_auto_wrap_policy", find_axolotl_wrapping},
    {"axolotl-loading", "cpu_ram_efficient_loading off, or beside four bits.", kAxolotl,
     "utils/schemas/validation.py: check_fsdp2_cpu_ram_efficient_loading_w_4bit", find_axolotl_loading},
    {"axolotl-packing", "Packing with an attention that mixes documents.", kAxolotl,
     "utils/schemas/validation.py: check_sample_packing_without_attention", find_axolotl_packing},
    {"axolotl-checkpoints-twice", "Checkpoints of fsdp_config beside gradient_checkpointing.", "transformers 5.16.1",
     "trainer.py: create_accelerator_and_postprocess", find_axolotl_checkpoints_twice},
    {"axolotl-optimizer", "States of bitsandbytes in eight bits under FSDP2.", kAxolotl,
     "utils/schemas/validation.py: check_fsdp2_w_8bit_optimizer", find_axolotl_optimizers},
    {"axolotl-plugin", "Keys of a plugin that is not listed.", kAxolotl, "integrations/config.py: merge_input_args",
     find_axolotl_plugins},
    {"axolotl-pinned-memory", "cpu_offload_pin_memory: false without offload.", kAxolotl,
     "utils/schemas/validation.py: check_fsdp2_cpu_offload_pin_memory", find_axolotl_pinned_memory},
    // DeepSpeed.
    {"deepspeed-key-removed", "A part that DeepSpeed removed.", kDeepSpeedRelease,
     "runtime/config.py: _reject_removed_config_keys", find_removed_keys},
    {"zero3-init", "zero3_init_flag without stage 3.", kAccelerate, "utils/dataclasses.py: DeepSpeedPlugin",
     find_zero3_init},
    {"stage3-key", "Keys of stage 3 under another stage.", kDeepSpeedRelease,
     "runtime/zero/config.py: DeepSpeedZeroConfig", find_stage3_keys},
    {"offload-needs-stage3", "Offload that only stage 3 has.", kDeepSpeedRelease,
     "runtime/zero/config.py: DeepSpeedZeroConfig", find_offload_without_stage3},
    {"deepspeed-two-precisions", "fp16 and bf16 are enabled.", kDeepSpeedRelease, "runtime/config.py: DeepSpeedConfig",
     find_two_precisions},
    {"deepspeed-launch-precision", "The file enables another precision than the launch.", kAccelerate,
     "utils/dataclasses.py: set_mixed_precision", find_launch_precision},
    {"deepspeed-batch", "Batch sizes that contradict the number of GPUs.", kDeepSpeedRelease,
     "runtime/config.py: _batch_assertion", find_deepspeed_batches},
    {"deepspeed-trainer-mismatch", "A value that differs from the Trainer's.", kTransformers,
     "integrations/deepspeed.py: trainer_config_finalize", find_trainer_mismatch},
    {"deepspeed-file-and-keys", "Keys beside deepspeed_config_file.", kAccelerate,
     "utils/dataclasses.py: _deepspeed_config_checks", find_fields_beside_file},
    {"overlap-second-buffer", "overlap_comm holds a second buffer.", kDeepSpeedRelease,
     "runtime/zero/stage_1_and_2.py: setup_buckets", find_second_bucket},
};

bool comes_before(const Finding& a, const Finding& b) {
  return std::tie(a.severity, a.place.file, a.place.line, a.place.column) <
         std::tie(b.severity, b.place.file, b.place.line, b.place.column);
}

}  // namespace

std::span<const Rule> rules() {
  return kRules;
}

const Rule& rule_named(std::string_view id) {
  const auto* found =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& rule) { return rule.id == id; });
  assert(found != std::end(kRules));
  return *found;
}

std::vector<Finding> check(const CheckedRun& run) {
  std::vector<Finding> findings;
  for (const Rule& rule : kRules) {
    Reporter report(rule.id);
    rule.find(run, report);
    findings.insert(findings.end(), report.findings.begin(), report.findings.end());
  }
  std::stable_sort(findings.begin(), findings.end(), comes_before);
  return findings;
}

}  // namespace fsdp::planner
