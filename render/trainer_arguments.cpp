// TrainingArguments of transformers 4.57.3, as a function of Python: its fsdp_config has no key for the version of
// FSDP, for reshard_after_forward and for the mesh, which accelerate reads from the environment when the Trainer makes
// its Accelerator.
//
// Sources: transformers 4.57.3, training_args.py (__post_init__) and trainer.py (create_accelerator_and_postprocess,
// get_optimizer_cls_and_kwargs); accelerate 1.12.0, utils/dataclasses.py and parallelism_config.py (os.environ).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "render/python_words.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::planner {

namespace {

/// Whether TrainingArguments.optim has a name for it.
bool is_named(const Optimizer& optimizer) {
  return optimizer.kind == OptimizerKind::AdamW && optimizer.implementation != OptimizerImplementation::ForLoop;
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
    duties.emplace_back("warning", "that gradient_checkpointing gathers again is about FSDP1; FSDP2 does not");
  }
  return duties;
}

std::vector<std::string> environment_lines(const Plan& plan) {
  std::vector<std::string> lines = {
      "# transformers has no argument for these: accelerate reads them from the environment.", "ACCELERATE = {",
      R"(    "FSDP_VERSION": "2",)", fmt::format(R"(    "FSDP_RESHARD_AFTER_FORWARD": "{}",)", *reshard_of_all(plan))};
  if (plan.mesh.replicate > 1) {
    lines.insert(lines.end(), {R"(    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",)",
                               fmt::format(R"(    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "{}",)", plan.mesh.replicate),
                               fmt::format(R"(    "PARALLELISM_CONFIG_DP_SHARD_SIZE": "{}",)", plan.mesh.shard)});
  }
  lines.emplace_back("}");
  return lines;
}

/// The value of fsdp=, and of fsdp_config=.
std::pair<std::string, std::string> fsdp_of(const TrainerConfig& config) {
  const std::optional<WrapPolicy> policy = wrap_policy_of(config.said.plan, config.model);
  std::string words = "full_shard";
  std::string keys;
  if (policy->more_than) {
    keys = fmt::format(R"("min_num_params": {})", *policy->more_than);
  } else if (!policy->classes.empty()) {
    std::vector<std::string> classes;
    for (const std::string& name : policy->classes) classes.push_back(quoted_text(name));
    keys = fmt::format(R"("transformer_layer_cls_to_wrap": [{}])", fmt::join(classes, ", "));
  }
  if (!keys.empty()) words += " auto_wrap";
  if (config.said.plan.cpu_offload) words += " offload";
  return {words, keys};
}

std::vector<std::string> argument_lines(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const auto [fsdp, fsdp_config] = fsdp_of(config);
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, const std::string& value) {
    lines.push_back(fmt::format("        {}={},", name, value));
  };
  const Dimension* batch = find_dimension(config.model.dimensions, "batch");
  if (batch != nullptr) add("per_device_train_batch_size", fmt::format("{:g}", batch->value));
  add("gradient_accumulation_steps", fmt::format("{}", plan.accumulation));
  add("bf16", truth(plan.mixed_precision.param_dtype == Dtype::BFloat16));
  add("max_grad_norm", fmt::format("{:g}", plan.optimizer.clip_grad_norm.value_or(0)));
  if (is_named(plan.optimizer)) {
    const bool is_fused = plan.optimizer.implementation == OptimizerImplementation::Fused;
    add("optim", is_fused ? "\"adamw_torch_fused\"" : "\"adamw_torch\"");
  }
  add("weight_decay", fmt::format("{}", plan.optimizer.weight_decay));
  if (!plan.checkpointing.entries.empty()) {
    add("gradient_checkpointing", "True");
    add("gradient_checkpointing_kwargs", R"({"use_reentrant": False})");
  }
  add("fsdp", quoted_text(fsdp));
  add("fsdp_config", fmt::format("{{{}}}", fsdp_config));
  return lines;
}

}  // namespace

std::string trainer_python(const TrainerConfig& config) {
  std::vector<std::string> lines = opening_of(Trainer::Transformers, config, torchrun_of(config, "train.py"));
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  add(lines_of("What these arguments cannot express, and the script must do:", duties_of_script(config)));
  lines = {python_docstring(lines)};
  add({"", "import os", "", "from transformers import TrainingArguments", ""});
  add(environment_lines(config.said.plan));
  add({"", "", "def training_arguments(output_dir, **more):",
       R"(    """Makes them. Call it before anything else of transformers or accelerate makes an Accelerator.""")",
       "    os.environ.update(ACCELERATE)", "    return TrainingArguments(", "        output_dir,"});
  add(argument_lines(config));
  add({"        **more,", "    )"});
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace fsdp::planner
