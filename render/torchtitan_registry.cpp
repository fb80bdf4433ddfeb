// A configuration of torchtitan 0.3.0, which reads no TOML: a Python function that torchtitan.train calls
// (config/manager.py, --module and --config). It starts from torchtitan's own configuration of the model, so that data,
// tokenizer, learning rate and checkpoints are torchtitan's and the user's, and sets everything in the plan. It also
// changes defaults of 0.3.0 that contradict the plan: CUDA graphs, which retain gradients and buffers of their own,
// unlike a prediction of eager steps; the loss in chunks, if the plan has another; FlexAttention, which is for
// torch.compile.
//
// Sources: torchtitan 0.3.0, config/configs.py, trainer.py (Trainer.Config), distributed/activation_checkpoint.py,
// components/loss.py, components/optimizer/optimizer.py, models/common/config_utils.py (get_attention_config).
//
// tests/rehearsal/titan_job_test.py lets torchtitan read such files, and rehearses one.
//
// Not modeled: attention over documents by varlen, which a plan without packed rows gets.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::render {

namespace {

std::string_view python_bool(bool is_true) {
  return is_true ? "True" : "False";
}

std::string_view implementation_of(const Optimizer& optimizer) {
  switch (optimizer.implementation) {
    case OptimizerImplementation::Fused:
      return "fused";
    case OptimizerImplementation::Foreach:
      return "foreach";
    case OptimizerImplementation::ForLoop:
      break;
  }
  return "for-loop";
}

std::vector<std::string> training_lines(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const double batch = find_dimension(config.model.dimensions, "batch")->value;
  const bool is_half = planner::dtype_of_shards(plan, config.model) == Dtype::BFloat16;
  return {fmt::format("    config.training.local_batch_size = {:g}", batch),
          fmt::format("    config.training.global_batch_size = {:g}",
                      batch * static_cast<double>(micro_batches_of_step(plan))),
          fmt::format("    config.training.seq_len = {:g}", find_dimension(config.model.dimensions, "seq")->value),
          fmt::format("    config.training.max_norm = {:g}", plan.optimizer.clip_grad_norm.value_or(1)),
          fmt::format("    config.training.dtype = \"{}\"", is_half ? "bfloat16" : "float32"),
          fmt::format("    config.training.mixed_precision_param = \"{}\"", name_of(*plan.mixed_precision.param_dtype)),
          "    config.training.mixed_precision_reduce = \"float32\"",
          fmt::format("    config.training.enable_cpu_offload = {}", python_bool(plan.cpu_offload)),
          fmt::format("    config.training.disable_cuda_graphs = {}", python_bool(!plan.cuda_graphs))};
}

std::vector<std::string> optimizer_of(const Optimizer& optimizer) {
  return {fmt::format("    config.optimizer.implementation = \"{}\"", implementation_of(optimizer)),
          "    for group in config.optimizer.param_groups:",
          fmt::format("        group.optimizer_name = \"{}\"", optimizer_row(optimizer).torchtitan),
          fmt::format("        group.optimizer_kwargs[\"weight_decay\"] = {}", optimizer.weight_decay)};
}

std::vector<std::string> parallelism_of(const Plan& plan, bool is_tied) {
  std::vector<std::string> lines = {
      "    config.parallelism = ParallelismConfig(",
      fmt::format("        data_parallel_replicate_degree={},", plan.mesh.dp_replicate()),
      fmt::format("        data_parallel_shard_degree={},", plan.mesh.dp_shard()),
      fmt::format("        fsdp_reshard_after_forward=\"{}\",", planner::torchtitan_reshard_of(plan))};
  // Under spmd_types, the default, a tied weight is gathered twice.
  if (is_tied) lines.emplace_back("        spmd_backend=\"partial_dtensor\",");
  lines.emplace_back("    )");
  return lines;
}

std::vector<std::string> loss_lines(const Loss& given) {
  const LossRow& row = loss_row(given);
  const std::string inner = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))";
  if (!row.calls_head) return {fmt::format("    config.loss = {}", inner)};
  return {fmt::format("    config.loss = {}.Config(", row.torchtitan),
          fmt::format("        num_chunks={},", num_chunks(given)), fmt::format("        loss_fn={},", inner), "    )"};
}

/// The class of torchtitan's that checkpoints all blocks as the plan does.
std::string_view policy_of(const Checkpointing& checkpointing) {
  const bool is_selective =
      !checkpointing.entries.empty() && checkpointing.entries.front().mode == CheckpointMode::Selective;
  return is_selective ? "SelectiveAC" : "FullAC";
}

}  // namespace

std::string torchtitan_registry(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const planner::TorchtitanModel named = *planner::torchtitan_model_of(config.model);
  const bool checkpoints = !plan.checkpointing.entries.empty();
  std::vector<std::string> head =
      opening_of(config, torchrun_of(config, "-m torchtitan.train --module FILE --config planned"));
  head.insert(
      head.end(),
      {"", "FILE is the name of this file without .py, in the folder that the command is started in. torchtitan 0.3.0",
       "runs on PyTorch 2.14 and later. The data set, the tokenizer, the learning rate and the steps are those of",
       "torchtitan's own configuration, and yours to change.", ""});
  std::vector<std::string> lines = {text::python_docstring(head)};
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  const LossRow& loss = loss_row(plan.runtime.implementations.loss);
  add({"", "from importlib.metadata import version", "",
       fmt::format("from torchtitan.components.loss import {}CrossEntropyLoss",
                   loss.calls_head ? fmt::format("{}, ", loss.torchtitan) : std::string()),
       "from torchtitan.config import ParallelismConfig"});
  const std::string_view policy = policy_of(plan.checkpointing);
  if (checkpoints) add({fmt::format("from torchtitan.distributed.activation_checkpoint import {}", policy)});
  add({"from torchtitan.models.common.config_utils import decoder_vocab_size",
       fmt::format("from torchtitan.models.{} import model_registry", named.name),
       fmt::format("from torchtitan.models.{}.config_registry import {}", named.name, named.config), "",
       "if not version(\"torchtitan\").startswith(\"0.3.\"):", "    raise ImportError(",
       "        f\"This file is for torchtitan 0.3; {version('torchtitan')} is installed. \"",
       "        \"Write one for it: fsdp-plan export --to torchtitan --trainer-version\"", "    )", "", "",
       "def planned():", fmt::format("    config = {}()", named.config),
       fmt::format("    config.hf_assets_path = {}", text::quoted_text("./assets/hf/" + config.model.name)),
       plan.packing ? "    # FlexAttention, which torch.compile compiles, and nothing else."
                    : "    # This way to attend runs without torch.compile.",
       fmt::format("    config.model_spec = model_registry(\"{}\", attn_backend=\"{}\")", named.flavor,
                   plan.packing ? "flex" : "varlen")});
  add(loss_lines(plan.runtime.implementations.loss));
  add(training_lines(config));
  add(optimizer_of(plan.optimizer));
  add(parallelism_of(plan, named.is_tied));
  add({fmt::format("    config.activation_checkpoint = {}", checkpoints ? fmt::format("{}.Config()", policy) : "None"),
       "    config.compile.enable = False", "    return config"});
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace fsdp::render
