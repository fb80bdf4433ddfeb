// accelerate's launch configuration sets environment variables, from which Accelerator and the Trainer make their
// plugins. What a line of `accelerate launch` says counts before the file.
//
// Sources: accelerate 1.15.0, commands/launch.py (_validate_launch_command), utils/launch.py (prepare_multi_gpu_env),
// utils/dataclasses.py (FullyShardedDataParallelPlugin), commands/config/config_args.py (ClusterConfig).
//
// Not modeled: launches on SageMaker and TPUs, Megatron-LM, several machines with different numbers of GPUs.

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "planner/jobs/job_builder.h"

namespace fsdp::planner {

namespace {

using enum KeyMeaning;

constexpr std::string_view kAxes = "tensor, context or sequence parallelism";

constexpr JobKey kAccelerateKeys[] = {
    {"compute_environment", Usual, "LOCAL_MACHINE", "a launch in the cloud"},
    {"debug"},
    {"distributed_type", Read},
    {"downcast_bf16", Usual, "no", "a launch on TPUs"},
    {"dynamo_config", Usual, "", "torch.compile"},
    {"enable_cpu_affinity"},
    {"fp8_config", Usual, "", "training in fp8"},
    {"gpu_ids"},
    {"machine_rank"},
    {"main_process_ip"},
    {"main_process_port"},
    {"main_training_function"},
    {"megatron_lm_config", Usual, "", "Megatron-LM"},
    {"mixed_precision", Read},
    {"mpirun_config"},
    {"num_machines", Read},
    {"num_processes", Read},
    {"rdzv_backend"},
    {"same_network"},
    {"tpu_env"},
    {"tpu_name"},
    {"tpu_zone"},
    {"tpu_use_cluster", Usual, "false", "a launch on TPUs"},
    {"tpu_use_sudo"},
    {"use_cpu", Usual, "false", "training on CPUs"},
    {"deepspeed_config", Read},
    {"deepspeed_config.deepspeed_config_file", Read},
    {"deepspeed_config.deepspeed_multinode_launcher"},
    {"deepspeed_config.zero3_init_flag"},
    {"deepspeed_config.gradient_accumulation_steps", Ignored, "", "the Trainer's own counts"},
    {"deepspeed_config.gradient_clipping", Ignored, "", "the Trainer's own counts"},
    {"deepspeed_config.zero3_save_16bit_model"},
    {"deepspeed_config.offload_optimizer_device", Read},
    {"deepspeed_config.offload_param_device", Read},
    {"deepspeed_config.zero_stage", Read},
    {"parallelism_config", Read},
    {"parallelism_config.parallelism_config_dp_replicate_size", Read},
    {"parallelism_config.parallelism_config_dp_shard_size", Read},
    {"parallelism_config.parallelism_config_tp_size", Usual, "1", kAxes},
    {"parallelism_config.parallelism_config_cp_size", Usual, "1", kAxes},
    {"parallelism_config.parallelism_config_cp_backend"},
    {"parallelism_config.parallelism_config_cp_comm_strategy"},
    {"parallelism_config.parallelism_config_sp_size", Usual, "1", kAxes},
    {"parallelism_config.parallelism_config_sp_backend"},
    {"fsdp_config", Read},
    {"fsdp_config.fsdp_version", Read},
    {"fsdp_config.fsdp_activation_checkpointing", Read},
    {"fsdp_config.fsdp_activation_checkpointing_offload", Usual, "false",
     "checkpoints in host memory; --checkpoint-offload yes plans transformers' own"},
    {"fsdp_config.fsdp_auto_wrap_policy", Read},
    {"fsdp_config.fsdp_backward_prefetch", Read},
    {"fsdp_config.fsdp_backward_prefetch_policy", Ignored, "", "accelerate names it fsdp_backward_prefetch"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", Read},
    {"fsdp_config.fsdp_forward_prefetch", Read},
    {"fsdp_config.fsdp_ignored_modules", Usual, "", "parameters that FSDP leaves alone"},
    {"fsdp_config.fsdp_min_num_params", Read},
    {"fsdp_config.fsdp_offload_params", Read},
    {"fsdp_config.fsdp_reshard_after_forward", Read},
    {"fsdp_config.fsdp_sharding_strategy", Read},
    {"fsdp_config.fsdp_state_dict_type"},
    {"fsdp_config.fsdp_sync_module_states"},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", Read},
    {"fsdp_config.fsdp_use_orig_params", Read},
};

constexpr std::string_view kVersion = "fsdp_config.fsdp_version";
constexpr std::string_view kReshard = "fsdp_config.fsdp_reshard_after_forward";
constexpr std::string_view kStrategy = "fsdp_config.fsdp_sharding_strategy";
constexpr std::string_view kPolicy = "fsdp_config.fsdp_auto_wrap_policy";
constexpr std::string_view kClasses = "fsdp_config.fsdp_transformer_layer_cls_to_wrap";
constexpr std::string_view kSmallest = "fsdp_config.fsdp_min_num_params";
constexpr std::string_view kOffload = "fsdp_config.fsdp_offload_params";
constexpr std::string_view kLoading = "fsdp_config.fsdp_cpu_ram_efficient_loading";

void say_machines(JobKeys& keys, Job& job) {
  const std::optional<std::int64_t> processes = keys.integer("num_processes");
  const std::int64_t machines = keys.integer("num_machines").value_or(1);
  if (!processes) return;
  if (*processes % machines != 0) {
    return keys.refuse("num_processes",
                       fmt::format("{} processes on {} machines are not as many on each.", *processes, machines),
                       "Write a multiple of num_machines.");
  }
  say(job, PlanChoice::Gpus, std::to_string(*processes / machines), keys.where("num_processes"));
  say(job, PlanChoice::Nodes, std::to_string(machines), keys.where("num_machines"));
}

/// The units: those of the model's own classes, of named classes, or of a size.
void say_units(JobKeys& keys, Job& job) {
  const std::string policy = keys.word(kPolicy).value_or("NO_WRAP");
  if (policy == "TRANSFORMER_BASED_WRAP" || policy == "0") {
    std::string classes;
    for (const std::string& each : keys.words(kClasses)) classes += (classes.empty() ? "" : ",") + each;
    say(job, PlanChoice::Wrap, classes.empty() ? "blocks" : "class:" + classes,
        keys.where(classes.empty() ? kPolicy : kClasses));
  } else if (policy == "SIZE_BASED_WRAP" || policy == "1") {
    constexpr std::int64_t kUnset = 100'000'000;
    say(job, PlanChoice::Wrap, fmt::format("size:{}", keys.integer(kSmallest, 0).value_or(kUnset)),
        keys.where(keys.has(kSmallest) ? kSmallest : kPolicy));
  } else if (policy == "NO_WRAP" || policy == "2") {
    say(job, PlanChoice::Wrap, "root", keys.where(kPolicy));
  } else {
    keys.refuse(kPolicy, fmt::format("\"{}\" is no policy of accelerate.", policy),
                "Write TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP.");
  }
}

void say_fsdp2(JobKeys& keys, Job& job) {
  const bool reshards = keys.flag(kReshard).value_or(true);
  say(job, PlanChoice::Runtime, "fsdp2", keys.where(kVersion));
  say(job, PlanChoice::Reshard, reshards ? "true" : "false", keys.where(kReshard));
  for (const std::string_view of_version_1 :
       {kStrategy, std::string_view("fsdp_config.fsdp_backward_prefetch"),
        std::string_view("fsdp_config.fsdp_forward_prefetch"), std::string_view("fsdp_config.fsdp_use_orig_params")}) {
    if (keys.has(of_version_1)) {
      job.notes.push_back(fmt::format("{} is ignored: it is of fsdp_version 1.", of_version_1));
    }
  }
}

void say_fsdp1(JobKeys& keys, Job& job) {
  say(job, PlanChoice::Runtime, "fsdp1", keys.where(kVersion));
  say(job, PlanChoice::Strategy, keys.word(kStrategy).value_or("FULL_SHARD"), keys.where(kStrategy));
  if (keys.flag("fsdp_config.fsdp_forward_prefetch").value_or(false)) {
    say(job, PlanChoice::Prefetch, "1", keys.where("fsdp_config.fsdp_forward_prefetch"));
  }
  if (keys.word("fsdp_config.fsdp_backward_prefetch").value_or("BACKWARD_PRE") != "BACKWARD_PRE") {
    keys.refuse("fsdp_config.fsdp_backward_prefetch", "Only BACKWARD_PRE is predicted for a launch.");
  }
}

AccelerateJob::Sharding say_fsdp(JobKeys& keys, AccelerateJob& made, Job& job) {
  made.checkpoints = keys.flag("fsdp_config.fsdp_activation_checkpointing").value_or(false);
  if (keys.flag(kOffload).value_or(false)) say(job, PlanChoice::Offload, "yes", keys.where(kOffload));
  say(job, PlanChoice::Initialization, keys.flag(kLoading).value_or(true) ? "meta" : "cpu", keys.where(kLoading));
  say_units(keys, job);
  const std::int64_t version = keys.integer(kVersion).value_or(1);
  version == 2 ? say_fsdp2(keys, job) : say_fsdp1(keys, job);
  const std::string_view replicate = "parallelism_config.parallelism_config_dp_replicate_size";
  const std::string_view shard = "parallelism_config.parallelism_config_dp_shard_size";
  if (const auto count = keys.integer(replicate); count && *count > 1) {
    say(job, PlanChoice::Replicate, std::to_string(*count), keys.where(replicate));
  }
  if (const auto count = keys.integer(shard); count && *count > 1) {
    say(job, PlanChoice::Shard, std::to_string(*count), keys.where(shard));
  }
  return version == 2 ? AccelerateJob::Sharding::Fsdp2 : AccelerateJob::Sharding::Fsdp1;
}

/// The stage of ZeRO, or DeepSpeed's own file.
void say_deepspeed(JobKeys& keys, Job& job) {
  const std::string_view file = "deepspeed_config.deepspeed_config_file";
  const std::string_view stage = "deepspeed_config.zero_stage";
  if (const auto path = keys.word(file)) return say(job, PlanChoice::DeepSpeedFile, *path, keys.where(file));
  const std::int64_t number = keys.integer(stage, 0).value_or(2);
  if (number < 1 || number > 3) {
    return keys.refuse(stage, fmt::format("ZeRO-{} is not predicted for a launch.", number), "Write 1, 2 or 3.");
  }
  say(job, PlanChoice::Runtime, fmt::format("zero{}", number), keys.where(stage));
  for (const std::string_view key : {std::string_view("deepspeed_config.offload_optimizer_device"),
                                     std::string_view("deepspeed_config.offload_param_device")}) {
    if (keys.word(key).value_or("none") == "none") continue;
    keys.refuse(key, "A part that is offloaded is read from DeepSpeed's own file alone.",
                "Write it there, and name it as deepspeed_config_file.");
  }
}

}  // namespace

std::span<const JobKey> accelerate_keys() {
  return kAccelerateKeys;
}

AccelerateJob say_accelerate(JobKeys& keys, Job& job) {
  AccelerateJob made;
  made.precision = keys.word("mixed_precision").value_or("no");
  made.precision_where = keys.where("mixed_precision");
  say_machines(keys, job);
  const bool has_several = keys.integer("num_processes").value_or(1) > 1;
  const std::string kind = keys.word("distributed_type").value_or(has_several ? "MULTI_GPU" : "NO");
  if (kind == "FSDP") {
    made.sharding = say_fsdp(keys, made, job);
  } else if (kind == "DEEPSPEED") {
    made.sharding = AccelerateJob::Sharding::DeepSpeed;
    say_deepspeed(keys, job);
  } else if (kind == "MULTI_GPU" || kind == "NO") {
    made.sharding = kind == "NO" ? AccelerateJob::Sharding::None : AccelerateJob::Sharding::Ddp;
    say(job, PlanChoice::Runtime, "ddp", keys.where("distributed_type"));
  } else {
    keys.refuse("distributed_type", fmt::format("{} is not predicted.", kind),
                "Write FSDP, MULTI_GPU, DEEPSPEED or NO.");
  }
  return made;
}

void say_optimizer(JobKeys& keys, std::string_view key, std::string_view unset, Job& job) {
  std::string name = keys.word(key).value_or(std::string(unset));
  constexpr std::string_view kFused = "_fused";
  const bool is_fused = name.ends_with(kFused);
  const std::string stem = is_fused ? name.substr(0, name.size() - kFused.size()) : name;
  std::vector<std::string_view> known;
  for (const OptimizerRow& row : kOptimizerRows) {
    if (row.hugging_face.empty()) continue;
    known.push_back(row.hugging_face);
    if (row.hugging_face != stem) continue;
    say(job, PlanChoice::OptimizerName, std::string(row.name), keys.where(key));
    if (row.update == UpdateRule::Torch) {
      say(job, PlanChoice::OptimizerImpl, is_fused ? "fused" : "foreach", keys.where(key));
    }
    return;
  }
  keys.refuse(key, fmt::format("The optimizer \"{}\" is not predicted.", name),
              fmt::format("Predicted are {}.", fmt::join(known, ", ")));
}

}  // namespace fsdp::planner
