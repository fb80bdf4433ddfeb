// accelerate's launch configuration sets environment variables, from which Accelerator and the Trainer make their
// plugins. What a line of `accelerate launch` says counts before the file.
//
// Sources: accelerate 1.15.0, commands/launch.py (_validate_launch_command), utils/launch.py (prepare_multi_gpu_env),
// utils/dataclasses.py (FullyShardedDataParallelPlugin), commands/config/config_args.py (ClusterConfig).
//
// Not modeled: launches on SageMaker and TPUs, Megatron-LM, several machines with different numbers of GPUs.

#include <fmt/format.h>
#include <fmt/ranges.h>

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
    {"deepspeed_config", Usual, "", "DeepSpeed"},
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
    {"fsdp_config.fsdp_offload_params", Usual, "false", "offloaded parameters"},
    {"fsdp_config.fsdp_reshard_after_forward", Read},
    {"fsdp_config.fsdp_sharding_strategy", Read},
    {"fsdp_config.fsdp_state_dict_type"},
    {"fsdp_config.fsdp_sync_module_states"},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", Read},
    {"fsdp_config.fsdp_use_orig_params", Read},
};

constexpr KeyChange kAccelerateChanges[] = {
    {PlanChoice::Reshard, "fsdp_config.fsdp_reshard_after_forward: true"},
    {PlanChoice::Reshard, "fsdp_config.fsdp_reshard_after_forward: false"},
    {PlanChoice::Wrap, "fsdp_config.fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"},
    {PlanChoice::Wrap, "fsdp_config.fsdp_auto_wrap_policy: NO_WRAP"},
    {PlanChoice::Shard,
     "parallelism_config.parallelism_config_dp_replicate_size: {copies}; "
     "parallelism_config.parallelism_config_dp_shard_size: {shards}"},
};

constexpr std::string_view kVersion = "fsdp_config.fsdp_version";
constexpr std::string_view kReshard = "fsdp_config.fsdp_reshard_after_forward";
constexpr std::string_view kStrategy = "fsdp_config.fsdp_sharding_strategy";
constexpr std::string_view kPolicy = "fsdp_config.fsdp_auto_wrap_policy";
constexpr std::string_view kClasses = "fsdp_config.fsdp_transformer_layer_cls_to_wrap";
constexpr std::string_view kSmallest = "fsdp_config.fsdp_min_num_params";
constexpr std::string_view kLoading = "fsdp_config.fsdp_cpu_ram_efficient_loading";

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

/// The data-parallel sizes of a mesh.
void say_mesh(JobKeys& keys, Job& job) {
  const auto say_size = [&](std::string_view key, PlanChoice choice) {
    const auto count = keys.integer(key);
    if (count && keys.where(key).starts_with("command:")) {
      // commands/launch.py: use_parallelism_config is true if the file has a parallelism_config, and no option changes
      // it.
      return keys.refuse(key, "accelerate ignores sizes on the line unless its file has a parallelism_config.",
                         "Write it into the file's parallelism_config.");
    }
    if (count && *count > 1) say(job, choice, std::to_string(*count), keys.where(key));
  };
  say_size("parallelism_config.parallelism_config_dp_replicate_size", PlanChoice::Replicate);
  say_size("parallelism_config.parallelism_config_dp_shard_size", PlanChoice::Shard);
}

}  // namespace

std::span<const JobKey> accelerate_keys() {
  return kAccelerateKeys;
}

std::span<const KeyChange> accelerate_changes() {
  return kAccelerateChanges;
}

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

namespace {

/// DistributedDataParallel as accelerate makes it, or one process, which needs none.
void say_ddp(JobKeys& keys, Job& job) {
  constexpr std::string_view kType = "distributed_type";
  say(job, PlanChoice::Runtime, "ddp", keys.where(kType));
  say(job, PlanChoice::Initialization, "cpu", keys.where(kType));
  if (keys.word(kType) == "NO") say(job, PlanChoice::Gpus, "1", keys.where(kType));
}

/// Whether processes hold the whole model: `accelerate launch` starts several of them without being told a type.
bool is_ddp_launch(JobKeys& keys) {
  const std::string type = keys.word("distributed_type").value_or("MULTI_GPU");
  return type == "MULTI_GPU" || type == "NO";
}

}  // namespace

AccelerateJob say_accelerate(JobKeys& keys, Job& job) {
  AccelerateJob made;
  made.precision = keys.word("mixed_precision").value_or("");
  if (is_ddp_launch(keys)) {
    if (keys.word("distributed_type") != "NO") say_machines(keys, job);
    say_ddp(keys, job);
    return made;
  }
  say_machines(keys, job);
  made.is_fsdp2 = keys.word("distributed_type") == "FSDP" && keys.integer(kVersion) == 2;
  if (!made.is_fsdp2) {
    keys.refuse("distributed_type", "Predicted are FSDP2, DDP and one GPU.",
                "Write distributed_type: FSDP with fsdp_version: 2, or MULTI_GPU.");
    return made;
  }
  made.checkpoints = keys.flag("fsdp_config.fsdp_activation_checkpointing").value_or(false);
  say(job, PlanChoice::Initialization, keys.flag(kLoading).value_or(true) ? "meta" : "cpu", keys.where(kLoading));
  say_units(keys, job);
  say_fsdp2(keys, job);
  say_mesh(keys, job);
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
