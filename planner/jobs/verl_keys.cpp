// A key with .* stands for all below it. Choices of a group, "engine=fsdp", have the group's name after "hydra.".
//
// Sources: verl 0.9.1, trainer/config/_generated_ppo_trainer.yaml and sft_trainer_engine.yaml, workers/config/*.py.

#include "planner/jobs/verl_keys.h"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::planner {

namespace {

using enum KeyMeaning;

constexpr std::string_view kPaddedRows = "rows that are padded to a fixed length";

/// FSDPEngineConfig.
constexpr JobKey kVerlEngineKeys[] = {
    {"strategy", Read},
    {"wrap_policy.min_num_params", Usual, "0", "units by their size"},
    {"wrap_policy.transformer_layer_cls_to_wrap", Read},
    {"wrap_policy.disable", Usual, "", "one unit of the whole model"},
    {"param_offload", Read},
    {"optimizer_offload", Read},
    {"offload_policy", Read},
    {"reshard_after_forward", Read},
    {"fsdp_size", Read},
    {"forward_prefetch", Read},
    {"model_dtype", Read},
    {"dtype"},
    {"mixed_precision.param_dtype", Usual, "bf16", "another dtype of products"},
    {"mixed_precision.reduce_dtype", Read},
    {"mixed_precision.buffer_dtype", Usual, "fp32", "another dtype of buffers"},
    {"use_orig_params", Usual, "", "original parameters under FSDP1"},
    {"seed"},
    {"full_determinism", Usual, "", "deterministic kernels"},
    {"ulysses_sequence_parallel_size", Usual, "1", "sequence parallelism"},
    {"entropy_from_logits_with_chunking", Read},
    {"entropy_from_logits_chunk_size"},
    {"entropy_checkpointing", Read},
    {"use_torch_compile"},
    {"use_no_sync_for_gradient_accumulation", Read},
    {"use_dynamic_bsz", Read},
    {"max_token_len_per_gpu", Read},
    {"micro_batch_size_per_gpu", Read},
    {"infer_max_token_len_per_gpu"},
    {"infer_micro_batch_size_per_gpu"},
    {"use_fused_kernels", Usual, "", "verl's fused loss"},
    {"use_remove_padding", Read},
    {"pad_to_length", Usual, "", kPaddedRows},
    {"pad_to_length_bucket"},
    {"forward_only", Usual, "", "a model that is not trained"},
    {"qat.enable", Usual, "", "training that is aware of quantization"},
    {"qat.*"},
    {"turbo_config.*"},
};

/// FSDPOptimizerConfig.
constexpr JobKey kVerlOptimizerKeys[] = {
    {"optimizer", Read},
    {"optimizer_impl", Read},
    {"lr"},
    {"lr_warmup_steps_ratio"},
    {"lr_warmup_steps"},
    {"total_training_steps"},
    {"weight_decay"},
    {"betas"},
    {"clip_grad", Read},
    {"min_lr_ratio"},
    {"num_cycles"},
    {"lr_scheduler_type"},
    {"zero_indexed_step"},
    {"warmup_style"},
    {"override_optimizer_config", Usual, "", "other arguments of the optimizer"},
};

/// HFModelConfig.
constexpr JobKey kVerlModelKeys[] = {
    {"path", Read},
    {"hf_config_path", Usual, "", "the configuration of another model"},
    {"tokenizer_path"},
    {"use_shm"},
    {"trust_remote_code", Read},
    {"custom_chat_template"},
    {"external_lib", Usual, "", "code of your own"},
    {"override_config.attn_implementation", Usual, "flash_attention_2", "another attention"},
    {"override_config.*", Usual, "", "changes of config.json"},
    {"enable_gradient_checkpointing", Read},
    {"enable_activation_offload", Usual, "", "activations in host memory"},
    {"use_remove_padding", Read},
    {"lora_rank", Read},
    {"lora_alpha", Read},
    {"target_modules", Read},
    {"target_parameters", Usual, "", "adapters of parameters"},
    {"exclude_modules", Usual, "", "layers without adapters"},
    {"lora_adapter_path"},
    {"use_liger", Usual, "", "kernels of Liger"},
    {"use_fused_kernels", Usual, "", "verl's fused loss"},
    {"fused_kernel_options.impl_backend"},
    {"tiled_mlp.enabled", Usual, "", "an MLP in tiles"},
    {"tiled_mlp.num_shards"},
    {"mtp.enable", Usual, "", "the prediction of several tokens"},
    {"mtp.*"},
    {"lora.merge"},
    {"lora.*"},
};

/// What beside the engine belongs to the actor.
constexpr JobKey kVerlActorKeys[] = {
    {"rollout_n"},
    {"strategy", Read},
    {"ppo_mini_batch_size", Read},
    {"ppo_micro_batch_size", Usual, "", "a micro-batch of all GPUs together"},
    {"ppo_micro_batch_size_per_gpu", Read},
    {"use_dynamic_bsz", Read},
    {"ppo_max_token_len_per_gpu", Read},
    {"clip_ratio"},
    {"clip_ratio_low"},
    {"clip_ratio_high"},
    {"clip_ratio_c"},
    {"tau_pos"},
    {"tau_neg"},
    {"freeze_vision_tower"},
    {"policy_loss.*"},
    {"loss_agg_mode"},
    {"loss_scale_factor"},
    {"entropy_coeff", Read},
    {"calculate_entropy", Read},
    {"calculate_sum_pi_squared", Usual, "", "sums of squared probabilities"},
    {"use_kl_loss", Read},
    {"use_prefix_grouper", Usual, "", "prompts that rows share"},
    {"use_torch_compile"},
    {"kl_loss_coef"},
    {"kl_loss_type"},
    {"ppo_epochs"},
    {"shuffle"},
    {"data_loader_seed"},
    {"checkpoint.*"},
    {"use_fused_kernels", Usual, "", "verl's fused loss"},
    {"profiler.*"},
    {"qat.enable", Usual, "", "training that is aware of quantization"},
    {"qat.*"},
    {"grad_clip"},
    {"ulysses_sequence_parallel_size", Usual, "1", "sequence parallelism"},
    {"entropy_from_logits_with_chunking", Read},
    {"entropy_from_logits_chunk_size"},
    {"entropy_checkpointing", Read},
    {"pad_to_length", Usual, "", kPaddedRows},
    {"use_remove_padding", Read},
};

/// The reference model: its forward has no gradients.
constexpr JobKey kVerlReferenceKeys[] = {
    {"rollout_n"},
    {"strategy"},
    {"use_torch_compile"},
    {"log_prob_micro_batch_size"},
    {"log_prob_micro_batch_size_per_gpu"},
    {"log_prob_use_dynamic_bsz"},
    {"log_prob_max_token_len_per_gpu"},
    {"ulysses_sequence_parallel_size"},
    {"entropy_from_logits_with_chunking"},
    {"entropy_from_logits_chunk_size"},
    {"entropy_checkpointing"},
    {"pad_to_length"},
    {"fsdp_config.*"},
    {"profiler.*"},
    {"model.*"},
};

/// The engine that generates.
constexpr JobKey kVerlRolloutKeys[] = {
    {"name", Read},
    {"mode"},
    {"nnodes", Usual, "0", "GPUs that only generate"},
    {"n_gpus_per_node"},
    {"temperature", Usual, "1", "logits that are divided by a temperature"},
    {"top_k"},
    {"top_p"},
    {"full_determinism"},
    {"seed"},
    {"prompt_length"},
    {"response_length"},
    {"dtype"},
    {"gpu_memory_utilization", Read},
    {"ignore_eos"},
    {"enforce_eager"},
    {"cudagraph_capture_sizes"},
    {"free_cache_engine", Read},
    {"tensor_model_parallel_size"},
    {"data_parallel_size"},
    {"expert_parallel_size"},
    {"pipeline_model_parallel_size"},
    {"max_num_batched_tokens"},
    {"max_model_len"},
    {"max_num_seqs"},
    {"enable_chunked_prefill"},
    {"enable_prefix_caching"},
    {"logprobs_mode"},
    {"scheduling_policy"},
    {"load_format"},
    {"layered_summon"},
    {"log_prob_micro_batch_size"},
    {"log_prob_micro_batch_size_per_gpu"},
    {"log_prob_use_dynamic_bsz"},
    {"log_prob_max_token_len_per_gpu", Read},
    {"disable_log_stats"},
    {"do_sample"},
    {"n", Read},
    {"over_sample_rate"},
    {"multi_stage_wake_up"},
    {"engine_kwargs.*"},
    {"val_kwargs.*"},
    {"router_config_path"},
    {"multi_turn.*"},
    {"calculate_log_probs"},
    {"agent.*"},
    {"checkpoint_engine.*"},
    {"trace.*"},
    {"skip_tokenizer_init"},
    {"enable_rollout_routing_replay"},
    {"moe_load_balance_metrics_interval"},
    {"prometheus.*"},
    {"quantization"},
    {"quantization_config_file"},
    {"mtp"},
    {"qat"},
    {"disaggregation.*"},
    {"limit_images"},
    {"profiler.*"},
};

constexpr JobKey kVerlPpoDataKeys[] = {
    {"tokenizer"},
    {"use_shm"},
    {"train_files"},
    {"val_files"},
    {"train_max_samples"},
    {"val_max_samples"},
    {"prompt_key"},
    {"reward_fn_key"},
    {"max_prompt_length", Read},
    {"max_response_length", Read},
    {"train_batch_size"},
    {"gen_batch_size"},
    {"val_batch_size"},
    {"tool_config_path"},
    {"function_tool_path"},
    {"return_raw_input_ids"},
    {"return_raw_chat"},
    {"return_full_prompt"},
    {"shuffle"},
    {"seed"},
    {"dataloader_num_workers"},
    {"image_patch_size"},
    {"validation_shuffle"},
    {"filter_overlong_prompts"},
    {"filter_overlong_prompts_workers"},
    {"truncation"},
    {"image_key"},
    {"video_key"},
    {"audio_key"},
    {"trust_remote_code"},
    {"custom_cls.path"},
    {"custom_cls.name"},
    {"return_multi_modal_inputs"},
    {"apply_chat_template_kwargs.*"},
    {"mm_processor_kwargs.*"},
    {"sampler.*"},
    {"datagen.*"},
};

constexpr JobKey kVerlPpoTrainerKeys[] = {
    {"balance_batch"},
    {"total_epochs"},
    {"total_training_steps"},
    {"project_name"},
    {"experiment_name"},
    {"logger"},
    {"log_val_generations"},
    {"rollout_data_dir"},
    {"validation_data_dir"},
    {"nnodes", Read},
    {"n_gpus_per_node", Read},
    {"save_freq"},
    {"esi_redundant_time"},
    {"resume_mode"},
    {"resume_from_path"},
    {"checkpoint_callback_class"},
    {"val_before_train"},
    {"val_only"},
    {"test_freq"},
    {"critic_warmup"},
    {"default_hdfs_dir"},
    {"del_local_ckpt_after_load"},
    {"default_local_dir"},
    {"max_actor_ckpt_to_keep"},
    {"max_critic_ckpt_to_keep"},
    {"ray_wait_register_center_timeout"},
    {"device", Usual, "cuda", "another device"},
    {"use_v1"},
    {"v1.trainer_mode", Usual, "sync", "generation beside the training"},
    {"v1.*"},
};

/// What stands beside the roles.
constexpr JobKey kVerlPpoKeys[] = {
    {"actor_rollout_ref.hybrid_engine", Usual, "true", "an actor apart from the engine"},
    {"actor_rollout_ref.nccl_timeout"},
    {"algorithm.adv_estimator", Read},
    {"algorithm.use_kl_in_reward", Read},
    {"algorithm.rollout_correction.*"},
    {"algorithm.gamma"},
    {"algorithm.lam"},
    {"algorithm.norm_adv_by_std_in_grpo"},
    {"algorithm.filter_groups.*"},
    {"algorithm.kl_penalty"},
    {"algorithm.kl_ctrl.*"},
    {"algorithm.use_pf_ppo"},
    {"algorithm.pf_ppo.*"},
    {"algorithm.gdpo_reward_keys"},
    {"algorithm.gdpo_reward_weights"},
    {"critic.*", Read},
    {"custom_reward_function.*"},
    {"reward_model.enable", Usual, "", "a reward model on the same GPUs"},
    {"reward_model.*"},
    {"reward.reward_model.enable", Usual, "", "a reward model on the same GPUs"},
    {"reward.*"},
    {"sandbox_fusion.*"},
    {"distillation.enabled", Usual, "", "distillation"},
    {"distillation.*"},
    {"transfer_queue.*"},
    {"global_profiler.*"},
    {"skip.*"},
    {"ray_kwargs.*"},
    {"hydra.model_engine", Usual, "dp", "another engine than FSDP"},
    {"hydra.config_name", Usual, "ppo_trainer", "another configuration than ppo_trainer"},
    {"hydra.config_path"},
};

constexpr JobKey kVerlSftKeys[] = {
    {"data.train_batch_size", Read},
    {"data.micro_batch_size_per_gpu", Read},
    {"data.max_token_len_per_gpu", Read},
    {"data.use_dynamic_bsz", Read},
    {"data.train_files"},
    {"data.val_files"},
    {"data.train_max_samples"},
    {"data.val_max_samples"},
    {"data.messages_key"},
    {"data.tools_key"},
    {"data.enable_thinking_key"},
    {"data.enable_thinking_default"},
    {"data.pad_mode", Usual, "no_padding", kPaddedRows},
    {"data.max_length", Read},
    {"data.truncation"},
    {"data.balance_dp_token"},
    {"data.custom_cls.*"},
    {"data.use_shm"},
    {"data.apply_chat_template_kwargs.*"},
    {"data.num_workers"},
    {"data.ignore_input_ids_mismatch"},
    {"data.image_key"},
    {"data.video_key"},
    {"checkpoint.*"},
    {"trainer.*"},
    {"profiler.*"},
    {"hydra.engine", Usual, "fsdp", "another engine than FSDP"},
    {"hydra.optim", Usual, "fsdp", "an optimizer of another engine"},
    {"hydra.model", Usual, "hf_model", "another kind of model"},
    {"hydra.config_name", Usual, "sft_trainer_engine", "another configuration than sft_trainer_engine"},
    {"hydra.config_path"},
};

/// Rows below names: the texts that the rows refer to live as long as the program.
class VerlTable {
 public:
  void add(std::span<const JobKey> rows, std::string_view below = "") {
    for (JobKey row : rows) {
      if (!below.empty()) row.name = names_.emplace_back(std::string(below) + "." + std::string(row.name));
      rows_.push_back(row);
    }
  }
  std::span<const JobKey> rows() const { return rows_; }

 private:
  std::deque<std::string> names_;
  std::vector<JobKey> rows_;
};

}  // namespace

std::span<const JobKey> verl_ppo_keys() {
  static const VerlTable kTable = [] {
    VerlTable table;
    table.add(kVerlActorKeys, "actor_rollout_ref.actor");
    table.add(kVerlEngineKeys, "actor_rollout_ref.actor.fsdp_config");
    table.add(kVerlOptimizerKeys, "actor_rollout_ref.actor.optim");
    table.add(kVerlModelKeys, "actor_rollout_ref.model");
    table.add(kVerlReferenceKeys, "actor_rollout_ref.ref");
    table.add(kVerlRolloutKeys, "actor_rollout_ref.rollout");
    table.add(kVerlPpoDataKeys, "data");
    table.add(kVerlPpoTrainerKeys, "trainer");
    table.add(kVerlPpoKeys);
    return table;
  }();
  return kTable.rows();
}

std::span<const JobKey> verl_sft_keys() {
  static const VerlTable kTable = [] {
    VerlTable table;
    table.add(kVerlEngineKeys, "engine");
    table.add(kVerlOptimizerKeys, "optim");
    table.add(kVerlModelKeys, "model");
    table.add(kVerlSftKeys);
    return table;
  }();
  return kTable.rows();
}

}  // namespace fsdp::planner
