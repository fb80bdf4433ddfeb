// The limits of torchtitan's configuration. Its units are fixed (apply_fsdp of models/llama3/infra/parallelize.py, or
// apply_fsdp_to_decoder of distributed/fsdp.py since 0.3.0): the embedding, each block, norm and head in one, the root.
// fsdp_reshard_after_forward applies to all but the root. It reduces gradients in float32 after every micro-batch and
// always clips them (train.py).
//
// 0.3.0 recomputes blocks to their end, casts no inputs, and computes q, k and v in one product. Its selective
// checkpointing counts products (activation_checkpoint.py), so it keeps what a plan of the flavor torchtitan-0.3 keeps,
// and other results than one of the flavor torchtitan, which is the code of 0.2.2.
//
// If head and embedding are tied, 0.3.0 makes one unit of embedding, norm and head. 0.2.2 would separate them.
//
// Not modeled: of a plan without packed rows we treat attention over documents ("varlen"), the only kind of 0.3.0 that
// is not compiled, as flash attention.

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/trainers/titan_layers.h"
#include "planner/trainers/trainer_limits.h"

namespace fsdp::planner {

namespace {

/// transformers' names of torchtitan's tok_embeddings, norm and output.
constexpr std::string_view kTitanEmbedding = "model.embed_tokens";
constexpr std::string_view kTitanNorm = "model.norm";
constexpr std::string_view kTitanHead = "lm_head";

bool is_tied(const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const Parameter& parameter) { return !parameter.tied_names.empty(); });
}

std::vector<Unit> titan_units(const Model& model, std::string_view reshard) {
  const auto kind = reshard == "never" ? ReshardAfterForward::Kind::Never : ReshardAfterForward::Kind::Always;
  const auto last = reshard == "always" ? ReshardAfterForward::Kind::Always : ReshardAfterForward::Kind::Never;
  const std::string embedding(kTitanEmbedding);
  Unit ends{{std::string(kTitanNorm), std::string(kTitanHead)}, {last, 0}};
  std::vector<Unit> units;
  if (is_tied(model)) {
    ends.modules.insert(ends.modules.begin(), embedding);
  } else {
    units.push_back({{embedding}, {kind, 0}});
  }
  for (const auto& stack : blocks_of(model)) {
    for (const std::string& block : stack) units.push_back({{block}, {kind, 0}});
  }
  units.push_back(std::move(ends));
  units.push_back({{""}, {}});
  return units;
}

std::optional<Error> no_flavor(const Plan&, const Model& model) {
  if (torchtitan_model_of(model)) return std::nullopt;
  return Error{"/model", fmt::format("torchtitan has no flavor that is {}.", model.name),
               fmt::format("Plans of these can be exported: {}.", torchtitan_models_in_library(true))};
}

std::optional<Error> other_titan_code(const Plan& plan, const Model&) {
  if (is_of_torchtitan(plan.runtime.flavor)) return std::nullopt;
  return Error{"/runtime/flavor", fmt::format("The plan is for the model code of {}.", plan.runtime.flavor),
               "Plan with --flavor torchtitan."};
}

std::optional<Error> other_titan_units(const Plan& plan, const Model& model) {
  if (!torchtitan_model_of(model)) return std::nullopt;
  for (const std::string_view reshard : {"default", "always", "never"}) {
    if (plan.units == titan_units(model, reshard)) return std::nullopt;
  }
  return Error{
      "/units",
      "torchtitan's units are the embedding, each block, and norm and head together; they are resharded all, none, "
      "or all but the last.",
      "Add --nearest FILE."};
}

void wrap_as_titan(Plan& plan, const Model& model) {
  if (!torchtitan_model_of(model)) return;
  const bool is_never = std::all_of(plan.units.begin(), plan.units.end(), [](const Unit& unit) {
    return is_root(unit) || unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Never;
  });
  // --reshard all: the root of torchtitan's plans has no parameters.
  const bool is_always = std::any_of(plan.units.begin(), plan.units.end(), [](const Unit& unit) {
    return is_root(unit) && unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Always;
  });
  plan.units = titan_units(model, is_never && plan.units.size() > 1 ? "never" : is_always ? "always" : "default");
}

std::optional<Error> other_titan_precision(const Plan& plan, const Model& model) {
  const MixedPrecision& given = plan.mixed_precision;
  const std::optional<Dtype> shards = dtype_of_shards(plan, model);
  const auto is_known = [](std::optional<Dtype> dtype) { return dtype == Dtype::Float32 || dtype == Dtype::BFloat16; };
  const bool is_alone = !given.output_dtype && !given.autocast;
  if (is_known(shards) && is_known(given.param_dtype) && given.reduce_dtype == Dtype::Float32 && is_alone) {
    return std::nullopt;
  }
  return Error{
      "/mixed_precision",
      "torchtitan computes in bfloat16 or float32, sets that for each unit, and always reduces gradients in float32.",
      "Plan with --precision mixed."};
}

void mix_as_titan(Plan& plan, const Model& model) {
  const Dtype compute = activation_dtype(model, plan);
  plan.mixed_precision = {.param_dtype = compute, .reduce_dtype = Dtype::Float32};
  if (!plan.parameter_dtype) plan.parameter_dtype = dtype_of_shards(plan, model);
}

std::optional<Error> other_titan_checkpointing(const Plan& plan, const Model& model) {
  const Checkpointing& given = plan.checkpointing;
  if (given.entries.empty()) return std::nullopt;
  const auto is_as_first = [&](const auto& entry) { return entry.mode == given.entries.front().mode; };
  if (!std::all_of(given.entries.begin(), given.entries.end(), is_as_first)) {
    return Error{"/activation_checkpointing", "Blocks are checkpointed in two ways; torchtitan treats all alike.",
                 "Plan with --activation-checkpointing full, selective or none."};
  }
  if (given.has(CheckpointMode::Nested) || given.has(CheckpointMode::Reentrant)) {
    return Error{"/activation_checkpointing",
                 "torchtitan checkpoints blocks without re-entry, and not their modules inside of them.",
                 "Plan with --activation-checkpointing full."};
  }
  const Checkpointing usual;
  const bool is_selective = given.entries.front().mode == CheckpointMode::Selective;
  if (is_selective && (given.selective_keep != usual.selective_keep || !given.every_second_linear)) {
    return Error{"/activation_checkpointing/selective_keep",
                 "torchtitan keeps the outputs of attention and of every second linear layer.",
                 "Plan with --activation-checkpointing selective."};
  }
  return not_all_blocks(plan, model);
}

void checkpoint_as_titan(Plan& plan, const Model& model) {
  const Checkpointing usual;
  plan.checkpointing.selective_keep = usual.selective_keep;
  plan.checkpointing.every_second_linear = usual.every_second_linear;
  const bool is_selective = plan.checkpointing.entries.front().mode == CheckpointMode::Selective;
  checkpoint(plan, model, {is_selective ? CheckpointMode::Selective : CheckpointMode::Full, {}});
}

/// Whether the plan's blocks keep what 0.3's policy keeps.
bool selects_as_registry(const Plan& plan) {
  const Checkpointing& given = plan.checkpointing;
  const Checkpointing usual;
  const auto is_selective = [](const auto& entry) { return entry.mode == CheckpointMode::Selective; };
  return plan.runtime.implementations.titan_attention && given.selective_keep == usual.selective_keep &&
         given.every_second_linear && std::all_of(given.entries.begin(), given.entries.end(), is_selective);
}

std::optional<Error> other_registry_checkpointing(const Plan& plan, const Model& model) {
  const Checkpointing& given = plan.checkpointing;
  if (given.entries.empty()) return std::nullopt;
  const auto is_full = [](const auto& entry) { return entry.mode == CheckpointMode::Full; };
  if (!std::all_of(given.entries.begin(), given.entries.end(), is_full) && !selects_as_registry(plan)) {
    return Error{
        "/activation_checkpointing",
        "torchtitan makes q, k and v in one product, and keeps others when it checkpoints selectively.",
        "Plan with --activation-checkpointing full or none, with --flavor torchtitan-0.3 selective, too, or write "
        "--trainer-version 0.2.2."};
  }
  if (given.early_stop) {
    return Error{"/activation_checkpointing/early_stop", "torchtitan recomputes blocks to their end.",
                 "Write false into the plan."};
  }
  return not_all_blocks(plan, model);
}

void checkpoint_as_registry(Plan& plan, const Model& model) {
  const bool selects = selects_as_registry(plan);
  plan.checkpointing.early_stop = false;
  checkpoint(plan, model, {selects ? CheckpointMode::Selective : CheckpointMode::Full, {}});
}

std::optional<Error> cast_by_registry(const Plan& plan, const Model&) {
  if (!plan.mixed_precision.cast_forward_inputs) return std::nullopt;
  return Error{"/mixed_precision/cast_forward_inputs", "torchtitan casts no inputs of units.",
               "Write false into the plan."};
}

std::optional<Error> other_titan_optimizer(const Plan& plan, const Model&) {
  if (!optimizer_row(plan.optimizer).torchtitan.empty()) return std::nullopt;
  return Error{"/optimizer/kind", "torchtitan has Adam and AdamW.", "Plan with --optimizer adamw."};
}

std::optional<Error> titan_clips(const Plan& plan, const Model&) {
  if (plan.optimizer.clip_grad_norm) return std::nullopt;
  return Error{"/optimizer/clip_grad_norm", "torchtitan always clips gradients.", "Plan with --clip-grad-norm 1."};
}

std::optional<Error> titan_sync(const Plan& plan, const Model&) {
  if (plan.accumulation == 1 || plan.sync_every_micro_batch) return std::nullopt;
  return Error{"/sync_every_micro_batch",
               "Gradients are reduced after the last micro-batch; torchtitan reduces them after every one.",
               "Plan with --gradient-sync every."};
}

std::optional<Error> other_titan_loss(const Plan& plan, const Model&) {
  const Loss& loss = plan.runtime.implementations.loss;
  if (!loss_row(loss).torchtitan.empty()) return std::nullopt;
  return Error{"/runtime/implementations/loss", fmt::format("torchtitan has no {}.", loss_row(loss).title),
               "Plan with --loss pytorch."};
}

/// The TOML of 0.2.2.
std::optional<Error> newer_than_toml(const Plan& plan, const Model&) {
  if (!plan.packing && !plan.runtime.implementations.titan_attention) return std::nullopt;
  return Error{plan.packing ? "/model/packing" : "/runtime/flavor",
               "The plan is for the attention of torchtitan 0.3, which keeps documents apart.",
               "Plan with --flavor torchtitan and without --packing, or write --trainer-version 0.3.0."};
}

std::optional<Error> tied_in_toml(const Plan&, const Model& model) {
  if (!is_tied(model)) return std::nullopt;
  return Error{"/model", "torchtitan 0.2.2 makes two units of embedding and head, which this model ties.",
               "Write --trainer-version 0.3.0."};
}

std::optional<Error> chunked_in_toml(const Plan& plan, const Model&) {
  const LossRow& row = loss_row(plan.runtime.implementations.loss);
  if (!row.calls_head) return std::nullopt;
  return Error{"/runtime/implementations/loss", fmt::format("{} is of {}.", row.title, row.library),
               "Plan with --loss pytorch, or write --trainer-version 0.3.0."};
}

/// A model that ends with the head and its loss in one is another one.
void compute_loss_of_titan(Plan& plan, const Model&) {
  const Implementations usual;
  if (loss_row(plan.runtime.implementations.loss).takes_head) return;
  plan.runtime.implementations.loss = usual.loss;
  plan.runtime.implementations.upcast_logits = usual.upcast_logits;
}

std::optional<Error> titan_packing(const Plan& plan, const Model&) {
  if (!plan.packing || plan.packing->attention == PackedAttention::Flex) return std::nullopt;
  return Error{"/model/packing/attention", "torchtitan keeps documents apart by FlexAttention.",
               "Plan with --packed-attention flex, or export it to fsdp2."};
}

std::optional<Error> titan_liger(const Plan& plan, const Model&) {
  if (!plan.liger) return std::nullopt;
  return Error{"/model/liger_kernels", "torchtitan's models do not run Liger's kernels.",
               "Plan without --liger, or export it to trainer."};
}

std::optional<Error> titan_float8(const Plan& plan, const Model&) {
  if (!plan.float8) return std::nullopt;
  for (const std::string& name : plan.float8->skip) {
    if (layer_in_torchtitan(name)) continue;
    return Error{"/model/float8", fmt::format("No layers of torchtitan's decoders are known here by \"{}\".", name),
                 "Name whole layers in skip=, such as k_proj or lm_head."};
  }
  return std::nullopt;
}

std::optional<Error> registry_float8(const Plan& plan, const Model&) {
  if (!plan.float8) return std::nullopt;
  return Error{"/model/float8", "Float8 layers of torchtitan 0.3 were not compared with a run.",
               "Write --trainer-version 0.2.2, or export it to fsdp2."};
}

std::optional<Error> titan_frozen(const Plan& plan, const Model&) {
  if (plan.lora) {
    return Error{"/model/lora", "torchtitan would train the whole model: it does not add PEFT's adapters.",
                 "Export to fsdp2, accelerate or trainer."};
  }
  if (plan.trainable.empty() && plan.frozen.empty()) return std::nullopt;
  return Error{"/model/frozen", "torchtitan trains all parameters.", "Plan without --freeze and --trainable."};
}

constexpr Limit kLimitsOfTorchtitan[] = {
    {no_flavor, nullptr, true},
    {other_titan_code, nullptr},
    {titan_packing, nullptr},
    {titan_liger, nullptr},
    {titan_float8, nullptr},
    {titan_frozen, nullptr},
    {[](const Plan& plan, const Model&) { return not_sharded(plan, "torchtitan"); }, shard_over_all},
    {other_titan_units, wrap_as_titan},
    {other_titan_precision, mix_as_titan},
    {other_titan_checkpointing, checkpoint_as_titan},
    {other_titan_optimizer, nullptr},
    {titan_clips, [](Plan& plan, const Model&) { plan.optimizer.clip_grad_norm = 1.0; }},
    {titan_sync, [](Plan& plan, const Model&) { plan.sync_every_micro_batch = true; }},
    {other_titan_loss, compute_loss_of_titan},
};

/// Configurations in Python.
constexpr Limit kLimitsOfRegistry[] = {
    {registry_float8, nullptr},
    {other_registry_checkpointing, checkpoint_as_registry},
    {cast_by_registry, [](Plan& plan, const Model&) { plan.mixed_precision.cast_forward_inputs = false; }},
};

}  // namespace

std::string_view torchtitan_reshard_of(const Plan& plan) {
  const auto is_always = [](const Unit& unit) {
    return unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Always;
  };
  if (!is_always(plan.units.front())) return "never";
  return is_always(plan.units[plan.units.size() - 2]) ? "always" : "default";
}

std::vector<Limit> limits_of_torchtitan(const TrainerRelease& release) {
  std::vector<Limit> limits(std::begin(kLimitsOfTorchtitan), std::end(kLimitsOfTorchtitan));
  if (!release.has_registry) {
    limits.push_back(limit_of_cast_inputs());
    limits.push_back(limit_of_graphs());
    limits.push_back({chunked_in_toml, nullptr});
    limits.push_back({tied_in_toml, nullptr, true});
    limits.push_back({newer_than_toml, nullptr});
    return limits;
  }
  std::erase_if(limits, [](const Limit& limit) { return limit.find == other_titan_checkpointing; });
  limits.insert(limits.end(), std::begin(kLimitsOfRegistry), std::end(kLimitsOfRegistry));
  return limits;
}

}  // namespace fsdp::planner
