// The YAML that accelerate launch reads, with the keys of accelerate 1.12.0 to 1.15.0 (commands/config/config_args.py
// ClusterConfig, commands/launch.py). It does not configure the training loop: its first lines list the loop's duties.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/plan/framework_traits.h"
#include "render/python_words.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::render {

namespace {

/// accelerate's name; 'no' in quotes, because YAML reads a bare no as false.
std::string_view mixed_precision_of(const Plan& plan) {
  return plan.mixed_precision.param_dtype == Dtype::BFloat16 ? "bf16" : "'no'";
}

std::vector<Duty> duties_of_loop(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<Duty> duties = duties_of_model(config);
  if (!plan.checkpointing.entries.empty()) {
    duties.emplace_back(
        "checkpointing",
        plan.checkpointing.offload_inputs
            ? R"(model.activation_checkpointing_enable({"use_reentrant": False}, offload=True), before prepare)"
            : R"(model.gradient_checkpointing_enable({"use_reentrant": False}), before prepare)");
  }
  duties.emplace_back("optimizer", fmt::format("{}(model.parameters(), {})", python_optimizer(plan.optimizer),
                                               python_optimizer_options(plan.optimizer)));
  duties.emplace_back("prepare", traits_of(plan).has_flat_parameters
                                     ? "model = accelerator.prepare(model), and only then the optimizer of its "
                                       "parameters, which is prepared by itself"
                                     : "model and optimizer in one call of accelerator.prepare");
  duties.emplace_back("micro-batch", sizes_of(plan.dimensions) + " on each GPU");
  if (plan.accumulation > 1) {
    duties.emplace_back(
        "accumulation",
        fmt::format("with accelerator.accumulate(model), and "
                    "Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps={}{}))",
                    plan.accumulation, plan.sync_every_micro_batch ? ", sync_each_batch=True" : ""));
  }
  duties.emplace_back("clipping", plan.optimizer.clip_grad_norm
                                      ? fmt::format("accelerator.clip_grad_norm_(model.parameters(), {:g})",
                                                    *plan.optimizer.clip_grad_norm)
                                      : std::string("none"));
  return duties;
}

std::string command_of(const TrainerConfig& config) {
  std::string command = environment_before(config.said.plan) + "accelerate launch --config_file FILE ";
  if (config.cluster.nodes > 1) command += "--machine_rank RANK --main_process_ip HOST ";
  return command + "train.py";
}

void add_wrapping(const TrainerConfig& config, std::vector<std::string>& lines) {
  const std::optional<planner::WrapPolicy> policy =
      planner::wrap_policy_of(config.release, config.said.plan, config.model);
  if (policy->more_than) {
    lines.emplace_back("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP");
    lines.push_back(fmt::format("  fsdp_min_num_params: {}", *policy->more_than));
  } else if (policy->classes.empty()) {
    lines.emplace_back("  fsdp_auto_wrap_policy: NO_WRAP");
  } else {
    lines.emplace_back("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP");
    const std::string classes = fmt::format("{}", fmt::join(policy->classes, ","));
    lines.push_back(fmt::format("  fsdp_transformer_layer_cls_to_wrap: {}", text::yaml_text(classes)));
  }
}

constexpr std::string_view kNotRecomputed =
    "  # True would recompute blocks by themselves or in parts, beside what the script does, and with a cache that "
    "grows.";

/// FSDP1's section.
void add_flat(const TrainerConfig& config, std::vector<std::string>& lines) {
  const Plan& plan = config.said.plan;
  lines.insert(lines.end(), {"fsdp_config:", "  fsdp_version: 1"});
  add_wrapping(config, lines);
  lines.insert(lines.end(), {fmt::format("  fsdp_sharding_strategy: {}", planner::flat_strategy_of(plan)),
                             fmt::format("  fsdp_backward_prefetch: {}", backward_prefetch_of(plan)),
                             fmt::format("  fsdp_forward_prefetch: {}", plan.fsdp1.forward_prefetch),
                             fmt::format("  fsdp_use_orig_params: {}", plan.fsdp1.use_orig_params),
                             fmt::format("  fsdp_offload_params: {}", plan.cpu_offload)});
  if (!plan.checkpointing.entries.empty()) lines.emplace_back(kNotRecomputed);
  lines.insert(lines.end(), {"  fsdp_activation_checkpointing: false", "  fsdp_sync_module_states: false",
                             "  fsdp_state_dict_type: SHARDED_STATE_DICT", "  fsdp_cpu_ram_efficient_loading: false"});
}

}  // namespace

std::string accelerate_yaml(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<std::string> notes = opening_of(config, command_of(config));
  for (std::string& line : lines_of("The script must do what this file cannot express:", duties_of_loop(config))) {
    notes.push_back(std::move(line));
  }
  std::vector<std::string> lines = text::as_comments(notes);
  lines.insert(lines.end(), {"compute_environment: LOCAL_MACHINE", "distributed_type: FSDP",
                             fmt::format("num_machines: {}", config.cluster.nodes),
                             fmt::format("num_processes: {}  # on all machines together", plan.mesh.world_size()),
                             "machine_rank: 0", "rdzv_backend: static", "same_network: true", "use_cpu: false"});
  lines.push_back(fmt::format("mixed_precision: {}", mixed_precision_of(plan)));
  if (traits_of(plan).options == OptionsMember::Fsdp1) {
    add_flat(config, lines);
    return fmt::format("{}\n", fmt::join(lines, "\n"));
  }
  if (plan.mesh.dp_replicate() > 1) {
    lines.insert(lines.end(), {"parallelism_config:",
                               fmt::format("  parallelism_config_dp_replicate_size: {}", plan.mesh.dp_replicate()),
                               fmt::format("  parallelism_config_dp_shard_size: {}", plan.mesh.dp_shard())});
  }
  lines.insert(lines.end(), {"fsdp_config:", "  fsdp_version: 2"});
  add_wrapping(config, lines);
  lines.insert(lines.end(), {fmt::format("  fsdp_reshard_after_forward: {}",
                                         *planner::reshard_of_all(config.release, plan, config.model)),
                             fmt::format("  fsdp_offload_params: {}", plan.cpu_offload)});
  if (!plan.checkpointing.entries.empty()) {
    lines.emplace_back(kNotRecomputed);
  }
  lines.insert(lines.end(), {"  fsdp_activation_checkpointing: false", "  fsdp_state_dict_type: SHARDED_STATE_DICT",
                             fmt::format("  fsdp_cpu_ram_efficient_loading: {}", loads_on_first_process(config))});
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace fsdp::render
