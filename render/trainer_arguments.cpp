// TrainingArguments of transformers, as a Python function. In 5.x all of FSDP2 is in fsdp_config, and the mesh in
// parallelism_config. In 4.57 fsdp_config has no key for the version of FSDP, for reshard_after_forward and for the
// mesh, which accelerate reads from the environment when the Trainer makes its Accelerator. In 5.x the defaults of
// fsdp_config override such variables, so each file refuses the other releases. FSDP1 is written for 5.x alone.
//
// from_pretrained reads the environment to decide whether one process loads for all (distributed/fsdp.py
// is_fsdp_enabled).
//
// Sources: transformers 5.24.0, training_args.py (_process_fsdp_args, activation_checkpointing), distributed/fsdp.py,
// trainer.py (create_accelerator_and_postprocess); 4.57.3, training_args.py (__post_init__) and trainer.py
// (create_accelerator_and_postprocess, get_optimizer_cls_and_kwargs); accelerate 1.15.0 and 1.12.0,
// utils/dataclasses.py and parallelism_config.py (os.environ).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "render/python_words.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::render {

namespace {

/// Whether TrainingArguments.optim has a name for it.
bool is_named(const Optimizer& optimizer) {
  return !optimizer_row(optimizer).hugging_face.empty() && optimizer.implementation != OptimizerImplementation::ForLoop;
}

std::string truth(bool is_true) {
  return is_true ? "True" : "False";
}

std::vector<Duty> duties_of_script(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<Duty> duties = duties_of_model(config);
  std::string more;
  if (!is_named(plan.optimizer)) {
    more = fmt::format(", optimizer_cls_and_kwargs=({}, dict({}))", python_optimizer(plan.optimizer),
                       python_optimizer_options(plan.optimizer));
  }
  duties.emplace_back("trainer",
                      fmt::format("Trainer(model, training_arguments(\"output\"), train_dataset=...{})", more));
  duties.emplace_back("micro-batch",
                      sizes_of(plan.dimensions) + " on each GPU; the data decides all sizes but the batch");
  if (!plan.checkpointing.entries.empty()) {
    const std::string_view name =
        config.release.has_keys_of_fsdp2 ? "activation_checkpointing" : "gradient_checkpointing";
    if (!traits_of(plan).has_flat_parameters) {
      duties.emplace_back("warning", fmt::format("that {} gathers again is about FSDP1; FSDP2 does not", name));
    }
  }
  return duties;
}

// ---- 4.57

std::vector<std::string> environment_lines(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<std::string> lines = {
      "# transformers has no argument for these: accelerate reads them from the environment.", "ACCELERATE = {",
      R"(    "FSDP_VERSION": "2",)",
      fmt::format(R"(    "FSDP_RESHARD_AFTER_FORWARD": "{}",)",
                  *planner::reshard_of_all(config.release, plan, config.model))};
  if (plan.mesh.dp_replicate() > 1) {
    lines.insert(lines.end(),
                 {R"(    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",)",
                  fmt::format(R"(    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "{}",)", plan.mesh.dp_replicate()),
                  fmt::format(R"(    "PARALLELISM_CONFIG_DP_SHARD_SIZE": "{}",)", plan.mesh.dp_shard())});
  }
  lines.emplace_back("}");
  return lines;
}

std::string list_of(const std::vector<std::string>& classes) {
  std::vector<std::string> quoted;
  for (const std::string& name : classes) quoted.push_back(text::quoted_text(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

/// fsdp= and fsdp_config=.
std::vector<std::string> fsdp_in_words(const TrainerConfig& config) {
  const std::optional<planner::WrapPolicy> policy =
      planner::wrap_policy_of(config.release, config.said.plan, config.model);
  std::string words = "full_shard";
  std::vector<std::string> keys;
  if (policy->more_than) {
    keys.push_back(fmt::format(R"("min_num_params": {})", *policy->more_than));
  } else if (!policy->classes.empty()) {
    keys.push_back(fmt::format(R"("transformer_layer_cls_to_wrap": {})", list_of(policy->classes)));
  }
  if (!keys.empty()) words += " auto_wrap";
  if (config.said.plan.cpu_offload) words += " offload";
  if (loads_on_first_process(config)) keys.emplace_back(R"("cpu_ram_efficient_loading": True)");
  return {fmt::format("        fsdp={},", text::quoted_text(words)),
          fmt::format("        fsdp_config={{{}}},", fmt::join(keys, ", "))};
}

// ---- 5.24

void add_policy(const planner::WrapPolicy& policy, std::vector<std::string>& lines) {
  if (policy.more_than) {
    lines.emplace_back(R"(            "auto_wrap_policy": "SIZE_BASED_WRAP",)");
    lines.push_back(fmt::format(R"(            "min_num_params": {},)", *policy.more_than));
  } else if (policy.classes.empty()) {
    lines.emplace_back(R"(            "auto_wrap_policy": "NO_WRAP",)");
  } else {
    lines.emplace_back(R"(            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",)");
    lines.push_back(fmt::format(R"(            "transformer_layer_cls_to_wrap": {},)", list_of(policy.classes)));
  }
}

/// The same for FSDP1, all of whose defaults differ from the plan's.
std::vector<std::string> flat_fsdp_in_keys(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<std::string> lines = {
      "        fsdp=True,", "        fsdp_config={", R"(            "version": 1,)",
      fmt::format(R"(            "reshard_after_forward": "{}",)", planner::flat_strategy_of(plan))};
  add_policy(*planner::wrap_policy_of(config.release, plan, config.model), lines);
  const std::pair<std::string_view, std::string> keys[] = {
      {"backward_prefetch", text::quoted_text(std::string(backward_prefetch_of(plan)))},
      {"forward_prefetch", truth(plan.fsdp1.forward_prefetch)},
      {"use_orig_params", truth(plan.fsdp1.use_orig_params)},
      {"sync_module_states", "False"},
      {"cpu_offload", truth(plan.cpu_offload)},
      {"cpu_ram_efficient_loading", "False"}};
  for (const auto& [key, value] : keys) lines.push_back(fmt::format("            \"{}\": {},", key, value));
  lines.emplace_back("        },");
  return lines;
}

/// fsdp=, fsdp_config= and parallelism_config=.
std::vector<std::string> fsdp_in_keys(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const std::optional<planner::WrapPolicy> policy = planner::wrap_policy_of(config.release, plan, config.model);
  std::vector<std::string> lines = {"        fsdp=True,", "        fsdp_config={", R"(            "version": 2,)"};
  const auto add = [&](std::string_view key, const std::string& value) {
    lines.push_back(fmt::format("            \"{}\": {},", key, value));
  };
  add("reshard_after_forward", truth(*planner::reshard_of_all(config.release, plan, config.model)));
  add_policy(*policy, lines);
  add("cpu_offload", truth(plan.cpu_offload));
  add("cpu_ram_efficient_loading", truth(loads_on_first_process(config)));
  lines.emplace_back("        },");
  if (plan.mesh.dp_replicate() > 1) {
    lines.push_back(fmt::format("        parallelism_config=ParallelismConfig(dp_replicate_size={}, dp_shard_size={}),",
                                plan.mesh.dp_replicate(), plan.mesh.dp_shard()));
  }
  return lines;
}

std::vector<std::string> argument_lines(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, const std::string& value) {
    lines.push_back(fmt::format("        {}={},", name, value));
  };
  const Dimension* batch = find_dimension(config.model.dimensions, "batch");
  if (batch != nullptr) add("per_device_train_batch_size", fmt::format("{:g}", batch->value));
  add("gradient_accumulation_steps", fmt::format("{}", plan.accumulation));
  if (plan.accumulation > 1 && plan.sync_every_micro_batch) {
    add("accelerator_config", R"({"gradient_accumulation_kwargs": {"sync_each_batch": True}})");
  }
  add("bf16", truth(plan.mixed_precision.param_dtype == Dtype::BFloat16));
  add("max_grad_norm", fmt::format("{:g}", plan.optimizer.clip_grad_norm.value_or(0)));
  if (is_named(plan.optimizer)) {
    const bool is_fused = plan.optimizer.implementation == OptimizerImplementation::Fused;
    add("optim", fmt::format("\"{}{}\"", optimizer_row(plan.optimizer).hugging_face, is_fused ? "_fused" : ""));
  }
  add("weight_decay", fmt::format("{}", plan.optimizer.weight_decay));
  if (plan.runtime.implementations.loss != Loss{} || plan.liger) {
    add("use_liger_kernel", "True");
    add("liger_kernel_config", liger_config_of(plan, config.model));
  }
  if (!plan.checkpointing.entries.empty()) {
    const std::string name = config.release.has_keys_of_fsdp2 ? "activation_checkpointing" : "gradient_checkpointing";
    add(name, "True");
    add(name + "_kwargs", plan.checkpointing.offload_inputs ? R"({"use_reentrant": False, "offload": True})"
                                                            : R"({"use_reentrant": False})");
  }
  const bool is_flat = traits_of(plan).has_flat_parameters;
  const auto in_keys = is_flat ? flat_fsdp_in_keys : fsdp_in_keys;
  for (std::string& line : config.release.has_keys_of_fsdp2 ? in_keys(config) : fsdp_in_words(config)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> check_lines(const planner::TrainerRelease& release) {
  const bool is_new = release.has_keys_of_fsdp2;
  return {fmt::format("RELEASES = {}", is_new ? "{transformers: ((5, 24), (6, 0)), accelerate: ((1, 14), (2, 0))}"
                                              : "{transformers: ((4, 57), (5, 0)), accelerate: ((1, 12), (1, 14))}"),
          "for package, (first, end) in RELEASES.items():",
          "    if not first <= tuple(int(part) for part in package.__version__.split(\".\")[:2]) < end:",
          "        raise ImportError(",
          "            \"{} {} is installed; this file is for {}.{} to before {}.{}, and would train another plan with "
          "it. \"",
          "            \"Write one for it: fsdp-plan export PLAN --to trainer --trainer-version\"",
          "            .format(package.__name__, package.__version__, *first, *end)",
          "        )"};
}

}  // namespace

std::string trainer_python(const TrainerConfig& config) {
  const bool has_keys = config.release.has_keys_of_fsdp2;
  std::vector<std::string> lines = opening_of(config, torchrun_of(config, "train.py"));
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  add(lines_of("The script must do what these arguments cannot express:", duties_of_script(config)));
  lines.emplace_back("");
  lines = {text::python_docstring(lines)};
  add({"", "import os", "", "import accelerate", "import transformers"});
  if (has_keys && config.said.plan.mesh.dp_replicate() > 1)
    add({"from accelerate.parallelism_config import ParallelismConfig"});
  add({"from transformers import TrainingArguments", ""});
  add(check_lines(config.release));
  if (!has_keys) {
    add({""});
    add(environment_lines(config));
  }
  add({"", "", "def training_arguments(output_dir, **more):",
       R"(    """Makes them. Call it before from_pretrained, and before anything makes an Accelerator.""")"});
  if (!has_keys) add({"    os.environ.update(ACCELERATE)"});
  if (loads_on_first_process(config)) {
    add({"    # Tells from_pretrained, which runs before the Trainer does, that one process reads for all.",
         R"(    os.environ["ACCELERATE_USE_FSDP"] = "true")"});
  }
  add({"    return TrainingArguments(", "        output_dir,"});
  add(argument_lines(config));
  add({"        **more,", "    )"});
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace fsdp::render
