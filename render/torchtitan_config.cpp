// The TOML of torchtitan, with the keys of v0.2.2, the last version that reads TOML (torchtitan/config/job_config.py).
// The user sets everything outside of the plan (data, learning rate, checkpoints); the file has torchtitan's defaults.
//
// Not modeled: torchtitan has not run such a file here.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/plan/float8.h"
#include "core/plan/optimizer_table.h"
#include "planner/trainers/titan_layers.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::render {

namespace {

std::string toml(double number) {
  return number == static_cast<double>(static_cast<std::int64_t>(number)) ? fmt::format("{:.1f}", number)
                                                                          : fmt::format("{}", number);
}

std::vector<std::string> training_of(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const double batch = find_dimension(config.model.dimensions, "batch")->value;
  const Dimension* seq = find_dimension(config.model.dimensions, "seq");
  const bool is_half = planner::dtype_of_shards(plan, config.model) == Dtype::BFloat16;
  return {"[training]",
          fmt::format("local_batch_size = {:g}", batch),
          fmt::format("global_batch_size = {:g}", batch * static_cast<double>(micro_batches_of_step(plan))),
          fmt::format("seq_len = {:g}", seq->value),
          fmt::format("max_norm = {}", toml(plan.optimizer.clip_grad_norm.value_or(1))),
          fmt::format("dtype = \"{}\"", is_half ? "bfloat16" : "float32"),
          fmt::format("mixed_precision_param = \"{}\"", name_of(*plan.mixed_precision.param_dtype)),
          "mixed_precision_reduce = \"float32\"",
          fmt::format("enable_cpu_offload = {}", plan.cpu_offload),
          ""};
}

std::vector<std::string> optimizer_of_titan(const Optimizer& optimizer) {
  const std::string_view implementation = optimizer.implementation == OptimizerImplementation::Fused     ? "fused"
                                          : optimizer.implementation == OptimizerImplementation::Foreach ? "foreach"
                                                                                                         : "for-loop";
  return {"[optimizer]", fmt::format("name = \"{}\"", optimizer_row(optimizer).torchtitan),
          fmt::format("implementation = \"{}\"", implementation),
          fmt::format("weight_decay = {}", toml(optimizer.weight_decay)), ""};
}

std::vector<std::string> checkpointing_of(const Checkpointing& given) {
  if (given.entries.empty()) return {"[activation_checkpoint]", "mode = \"none\"", ""};
  const bool is_selective = given.entries.front().mode == CheckpointMode::Selective;
  std::vector<std::string> lines = {"[activation_checkpoint]",
                                    fmt::format("mode = \"{}\"", is_selective ? "selective" : "full")};
  if (is_selective) lines.emplace_back("selective_ac_option = \"op\"");
  lines.push_back(fmt::format("early_stop = {}", given.early_stop));
  lines.emplace_back();
  return lines;
}

/// The table of the converter that [model] names.
std::vector<std::string> float8_layers_of(const Float8Training& float8) {
  std::vector<std::string> filter;
  if (float8.skip.empty() && !float8.skips_none) filter.emplace_back(R"("output")");
  for (const std::string& name : float8.skip)
    filter.push_back(fmt::format(R"("{}")", *planner::layer_in_torchtitan(name)));
  if (float8.skips_small) filter.emplace_back(R"("auto_filter_small_kn")");
  std::vector<std::string> lines = {"[quantize.linear.float8]"};
  if (float8.recipe != Float8Recipe::Tensorwise) {
    lines.push_back(fmt::format(R"(recipe_name = "{}")", name_of(float8.recipe)));
  }
  lines.push_back(fmt::format("enable_fsdp_float8_all_gather = {}", float8.all_gather));
  lines.push_back(fmt::format("precompute_float8_dynamic_scale_for_fsdp = {}", float8.precompute));
  lines.push_back(fmt::format("filter_fqns = [{}]", fmt::join(filter, ", ")));
  lines.emplace_back();
  return lines;
}

}  // namespace

std::string torchtitan_toml(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const std::optional<planner::TorchtitanModel> named = planner::torchtitan_model_of(config.model);
  std::vector<std::string> lines =
      text::as_comments(opening_of(config, torchrun_of(config, "-m torchtitan.train --job.config_file FILE")));
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  add({"#",
       "# Its keys were checked against torchtitan's source; torchtitan has not run it. The data set, the tokenizer",
       "# ([model] hf_assets_path), the learning rate and the steps are yours to add.", "", "[model]",
       fmt::format("name = \"{}\"", named->name), fmt::format("flavor = \"{}\"", named->flavor)});
  if (plan.float8) lines.emplace_back("converters = [\"quantize.linear.float8\"]");
  lines.emplace_back();
  if (plan.float8) add(float8_layers_of(*plan.float8));
  add(optimizer_of_titan(plan.optimizer));
  add(training_of(config));
  add({"[parallelism]", fmt::format("data_parallel_replicate_degree = {}", plan.mesh.dp_replicate()),
       fmt::format("data_parallel_shard_degree = {}", plan.mesh.dp_shard()),
       fmt::format("fsdp_reshard_after_forward = \"{}\"", planner::torchtitan_reshard_of(plan)),
       "tensor_parallel_degree = 1", "pipeline_parallel_degree = 1", "context_parallel_degree = 1", ""});
  add(checkpointing_of(plan.checkpointing));
  add({"[compile]", "enable = false"});
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace fsdp::render
