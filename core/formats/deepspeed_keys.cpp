// Sources: deepspeed/runtime/constants.py, config.py, swap_tensor/aio_config.py, precision_config.py, zero/config.py,
// zero/offload_config.py, activation_checkpointing/config.py, monitor/config.py, profiling/config.py, comm/config.py,
// DeepSpeed 0.19.8.

#include "core/formats/deepspeed_keys.h"

namespace fsdp {

namespace {

using enum DeepSpeedMeaning;

constexpr DeepSpeedKey kKeys[] = {
    {"train_batch_size", Read},
    {"train_micro_batch_size_per_gpu", Read},
    {"gradient_accumulation_steps", Read},
    {"gradient_clipping", Read},
    {"zero_optimization", Read},
    {"bf16", Read},
    {"bfloat16", Read},
    {"optimizer", Read},
    {"data_types", Read},
    {"activation_checkpointing", Read},
    {"fp16", Read},
    {"torch_autocast", Disabled},
    {"compile", Absent},
    {"autotuning", Disabled},
    {"hybrid_engine", Disabled},
    {"data_efficiency", Absent},
    {"weight_quantization", Absent},
    {"tensor_parallel", Absent},
    {"expert_parallel", Disabled},
    {"communication_data_type", Usual, "null"},
    {"prescale_gradients", Usual, "false"},
    {"gradient_predivide_factor", Usual, "1"},
    {"gradient_allreduce_op", Usual, "\"mean\""},
    {"managed_gradient_accumulation", Usual, "true"},
    {"disable_allgather", Usual, "false"},
    {"sequence_parallel_size", Usual, "1"},
    {"scheduler"},
    {"steps_per_print"},
    {"wall_clock_breakdown"},
    {"memory_breakdown"},
    {"dump_state"},
    {"disable_python_gc"},
    {"dataloader_drop_last"},
    {"log_level"},
    {"timers"},
    {"tensorboard"},
    {"wandb"},
    {"csv_monitor"},
    {"comet"},
    {"comms_logger"},
    {"flops_profiler"},
    {"checkpoint"},
    {"datastates_ckpt"},
    {"aio", Read},
    {"pipeline"},
    {"vocabulary_size"},
    {"seq_parallel_communication_data_type"},
    {"use_data_before_expert_parallelism"},
    {"zero_allow_untested_optimizer"},
    {"zero_force_ds_cpu_optimizer"},
    {"comms_config", Ignored},
    {"monitor_config", Ignored},
    {"flops_profiler_config", Ignored},
    {"nebula", Removed},
    {"compression_training", Removed},
    {"amp", Removed},
    {"quantize_training", Removed},
    {"sparse_gradients", Removed},
    {"eigenvalue", Removed},
    {"sparse_attention", Removed},
    {"elasticity", Removed},
    {"graph_harvesting", Removed},
    {"curriculum_learning", Removed},
    {"progressive_layer_drop", Removed},
};

constexpr DeepSpeedKey kZeroKeys[] = {
    {"stage", Read},
    {"reduce_bucket_size", Read},
    {"overlap_comm", Read},
    {"stage3_prefetch_bucket_size", Read},
    {"prefetch_bucket_size", Read},
    {"stage3_param_persistence_threshold", Read},
    {"param_persistence_threshold", Read},
    {"stage3_max_live_parameters", Read},
    {"max_live_parameters", Read},
    {"stage3_max_reuse_distance", Read},
    {"max_reuse_distance", Read},
    {"sub_group_size", Read},
    {"stage3_model_persistence_threshold", Read},
    {"model_persistence_threshold", Read},
    {"offload_param", Read},
    {"offload_optimizer", Read},
    {"contiguous_gradients", Usual, "true"},
    {"reduce_scatter", Usual, "true"},
    {"use_multi_rank_bucket_allreduce", Usual, "true"},
    {"allgather_partitions", Usual, "true"},
    {"compute_grad_norm", Usual, "true"},
    {"memory_efficient_linear", Usual, "true"},
    {"round_robin_gradients", Usual, "false"},
    {"parameter_alignment", Usual, "false"},
    {"legacy_stage1", Usual, "false"},
    {"cpu_offload", Absent},
    {"cpu_offload_param", Absent},
    {"zenflow", Absent},
    {"leaf_module", Absent},
    {"zero_quantized_weights", Read},
    {"zero_quantized_nontrainable_weights", Usual, "false"},
    {"zero_quantized_gradients", Read},
    {"zero_hpz_partition_size", Read},
    {"stage3_module_granularity_threshold", Usual, "0"},
    {"module_granularity_threshold", Usual, "0"},
    {"stage3_use_all_reduce_for_fetch_params", Usual, "false"},
    {"use_all_reduce_for_fetch_params", Usual, "false"},
    {"stage3_allgather_sequential", Usual, "false"},
    {"allgather_sequential", Usual, "false"},
    // One collective gathers each group of parameters, whatever the size (all_gather_into_tensor_dp_groups).
    {"allgather_bucket_size"},
    {"cpu_offload_use_pin_memory"},
    {"load_from_fp32_weights"},
    {"elastic_checkpoint"},
    {"ignore_unused_parameters"},
    {"stage3_gather_16bit_weights_on_model_save"},
    {"gather_16bit_weights_on_model_save"},
    {"stage3_gather_fp16_weights_on_model_save"},
    {"pipeline_loading_checkpoint"},
    {"override_module_apply"},
    {"log_trace_cache_warnings"},
    {"enable_sanity_checks"},
    {"save_muon_momentum_buffer_in_memory"},
    {"mics_shard_size", Removed},
    {"mics_hierarchical_params_gather", Removed},
    {"zeropp_loco_param", Removed},
};

// Those of NVMe have no effect if the device is another one.
constexpr DeepSpeedKey kOffloadOptimizerKeys[] = {
    {"device", Read},    {"pin_memory", Read},   {"ratio", Read},         {"super_offload", Usual, "false"},
    {"nvme_path", Read}, {"buffer_count", Read}, {"pipeline_read", Read}, {"pipeline_write", Read},
    {"fast_init", Read}, {"cpuadam_cores_perc"},
};

constexpr DeepSpeedKey kOffloadParamKeys[] = {
    {"device", Read},       {"pin_memory", Read},  {"nvme_path", Read},
    {"buffer_count", Read}, {"buffer_size", Read}, {"max_in_cpu", Read},
};

// "thread_count" is the old name of "intra_op_parallelism"; DeepSpeed accepts and ignores it.
constexpr DeepSpeedKey kAioKeys[] = {
    {"block_size", Read},
    {"intra_op_parallelism", Read},
    {"use_gds", Usual, "false"},
    {"queue_depth"},
    {"single_submit"},
    {"overlap_events"},
    {"thread_count"},
};

constexpr DeepSpeedKey kBf16Keys[] = {
    {"enabled", Read},
    {"immediate_grad_update", Usual, "false"},
    {"check_grad_overflow", Usual, "true"},
    {"bf16_master_weights_and_grads", Read},
    {"bf16_optimizer_states", Read},
};

constexpr DeepSpeedKey kFp16Keys[] = {
    {"enabled", Read},
    {"auto_cast", Read},
    {"loss_scale", Read},
    {"initial_scale_power", Read},
    {"loss_scale_window", Read},
    {"hysteresis", Read},
    {"consecutive_hysteresis", Read},
    {"min_loss_scale", Read},
    {"fp16_master_weights_and_grads", Usual, "false"},
};

constexpr DeepSpeedKey kDtypeKeys[] = {
    {"grad_accum_dtype", Usual, "null"},
    {"param_dtype", Usual, "null"},
    {"buffer_dtype", Usual, "null"},
    {"keep_in_fp32_modules", Usual, "\"auto\""},
};

constexpr DeepSpeedKey kCheckpointingKeys[] = {
    {"partition_activations", Usual, "false"},
    {"cpu_checkpointing", Usual, "false"},
    {"contiguous_memory_optimization", Usual, "false"},
    {"number_checkpoints"},
    {"synchronize_checkpoint_boundary"},
    {"profile"},
};

}  // namespace

std::span<const DeepSpeedKey> deepspeed_keys() {
  return kKeys;
}
std::span<const DeepSpeedKey> deepspeed_zero_keys() {
  return kZeroKeys;
}
std::span<const DeepSpeedKey> deepspeed_offload_optimizer_keys() {
  return kOffloadOptimizerKeys;
}
std::span<const DeepSpeedKey> deepspeed_offload_param_keys() {
  return kOffloadParamKeys;
}
std::span<const DeepSpeedKey> deepspeed_aio_keys() {
  return kAioKeys;
}
std::span<const DeepSpeedKey> deepspeed_bf16_keys() {
  return kBf16Keys;
}
std::span<const DeepSpeedKey> deepspeed_fp16_keys() {
  return kFp16Keys;
}
std::span<const DeepSpeedKey> deepspeed_dtype_keys() {
  return kDtypeKeys;
}
std::span<const DeepSpeedKey> deepspeed_checkpointing_keys() {
  return kCheckpointingKeys;
}

}  // namespace fsdp
