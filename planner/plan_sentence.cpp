#include "planner/plan_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/json_writer.h"
#include "core/base/name_ranges.h"
#include "planner/strategy_names.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// Names of units other than blocks are told up to this length; more of them are counted.
constexpr std::size_t kMostNameColumns = 44;

const Dimension* find_dimension(const Plan& plan, std::string_view name) {
  const auto found = std::find_if(plan.dimensions.begin(), plan.dimensions.end(),
                                  [&](const Dimension& dimension) { return dimension.name == name; });
  return found == plan.dimensions.end() ? nullptr : &*found;
}

std::string checkpointing_of(const Plan& plan, const ModelFacts& facts) {
  std::int64_t full = 0;
  std::int64_t selective = 0;
  for (const Checkpointing::Entry& entry : plan.checkpointing.entries) {
    full += entry.mode == CheckpointMode::Full ? 1 : 0;
    selective += entry.mode == CheckpointMode::Selective ? 1 : 0;
  }
  const auto share = [&](std::int64_t count) {
    const auto all = static_cast<std::int64_t>(facts.blocks.size());
    return count >= all ? fmt::format("all {}", counted(count, "block"))
                        : fmt::format("{} of {}", count, counted(all, "block"));
  };
  std::string text;
  if (full > 0) text = fmt::format("checkpoint {}", share(full));
  if (selective > 0) text += fmt::format("{}checkpoint {} selectively", text.empty() ? "" : ", ", share(selective));
  return text.empty() ? "no activation checkpointing" : text;
}

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::AdamW:
      return "AdamW";
    case OptimizerKind::Adam:
      return "Adam";
    case OptimizerKind::Sgd:
      return "SGD";
  }
  return "";
}

std::string_view name_of(OptimizerImplementation implementation) {
  switch (implementation) {
    case OptimizerImplementation::Foreach:
      return "foreach";
    case OptimizerImplementation::Fused:
      return "fused";
    case OptimizerImplementation::ForLoop:
      return "for-loop";
  }
  return "";
}

}  // namespace

ModelFacts facts_of(const Model& model) {
  ModelFacts facts;
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) {
      const int module = model.calls[call].module;
      if (module >= 0) facts.blocks.insert(model.modules[module].name);
    }
  }
  std::set<Dtype> dtypes;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.receives_gradient) dtypes.insert(parameter.dtype);
  }
  if (dtypes.size() == 1) facts.weights = *dtypes.begin();
  return facts;
}

std::string short_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float32:
      return "fp32";
    case Dtype::BFloat16:
      return "bf16";
    case Dtype::Float16:
      return "fp16";
    default:
      return std::string(name_of(dtype));
  }
}

std::string precision_of(const Plan& plan, const ModelFacts& facts) {
  const std::optional<Dtype> weights = plan.parameter_dtype ? plan.parameter_dtype : facts.weights;
  const std::string named = weights ? short_name(*weights) : "checkpoint-dtype";
  const std::optional<Dtype> compute = plan.mixed_precision.param_dtype ? plan.mixed_precision.param_dtype : weights;
  const std::optional<Dtype> reduce = plan.mixed_precision.reduce_dtype ? plan.mixed_precision.reduce_dtype : compute;
  if (compute == weights && reduce == weights) return weights ? named : "dtypes of the checkpoint";
  const bool is_usual = weights == Dtype::Float32 && reduce == Dtype::Float32 && compute != weights;
  if (is_usual) return fmt::format("{} mixed precision", short_name(*compute));
  std::string text = fmt::format("{} weights", named);
  if (compute) text += fmt::format(", {} compute", short_name(*compute));
  if (reduce && reduce != compute) text += fmt::format(", {} reduce", short_name(*reduce));
  return text;
}

std::string optimizer_of(const Plan& plan) {
  std::string text = fmt::format("{} {}", name_of(plan.optimizer.kind), name_of(plan.optimizer.implementation));
  if (plan.optimizer.states == OptimizerStates::BFloat16) text += ", bf16 states";
  if (plan.optimizer.states == OptimizerStates::EightBit) text += ", 8-bit states";
  return text;
}

std::string batch_of(const Plan& plan) {
  const Dimension* batch = find_dimension(plan, "batch");
  if (batch == nullptr) return "";
  const auto micro = static_cast<std::int64_t>(batch->value);
  const std::int64_t ranks = plan.mesh.world_size();
  std::string text = fmt::format("batch {}", micro);
  // A length among others follows from them, or says little without them.
  const Dimension* seq = plan.dimensions.size() == 2 ? find_dimension(plan, "seq") : nullptr;
  if (seq != nullptr) text += fmt::format(" (seq {})", shortest(seq->value));
  if (plan.accumulation > 1) text += fmt::format(" x {} accumulation", plan.accumulation);
  return fmt::format("{} x {} = {} a step", text, counted(ranks, "GPU"),
                     counted(micro * plan.accumulation * ranks, "sample"));
}

std::string wrapping_of_plan(const Plan& plan, const ModelFacts& facts) {
  std::vector<std::string> others;
  std::size_t blocks = 0;
  std::size_t per_unit = 0;
  for (const Unit& unit : plan.units) {
    const bool is_of_blocks = std::all_of(unit.modules.begin(), unit.modules.end(),
                                          [&](const std::string& module) { return facts.blocks.contains(module); });
    if (is_of_blocks) {
      blocks += unit.modules.size();
      per_unit = std::max(per_unit, unit.modules.size());
    } else {
      std::copy_if(unit.modules.begin(), unit.modules.end(), std::back_inserter(others),
                   [](const std::string& module) { return !module.empty(); });
    }
  }
  std::string text = "fully_shard";
  if (blocks > 0) {
    const auto all = static_cast<std::int64_t>(facts.blocks.size());
    text += blocks < facts.blocks.size() ? fmt::format(" on {} of {}", blocks, counted(all, "block"))
            : per_unit == 1              ? " per block"
                                         : fmt::format(" per {} blocks", per_unit);
  }
  if (others.empty()) return blocks > 0 ? text : "fully_shard on the root only";
  const std::string names = fmt::format("{}", fmt::join(fold_names(others), ", "));
  const std::string number = counted(static_cast<std::int64_t>(others.size()), blocks > 0 ? "other module" : "module");
  return fmt::format("{} {} {}", text, blocks > 0 ? "+" : "on", names.size() <= kMostNameColumns ? names : number);
}

std::string sentence_of(const Plan& plan, const ModelFacts& facts, const std::string& batch_origin) {
  const bool is_hybrid = plan.mesh.replicate > 1 && plan.mesh.shard > 1;
  const std::string mesh = is_hybrid ? fmt::format(" {} x {}", plan.mesh.replicate, plan.mesh.shard) : "";
  std::vector<std::string> parts = {
      fmt::format("{}{} ({}, {})", strategy_name(plan), mesh, wrapping_of_plan(plan, facts), short_reshard(plan))};
  if (const std::string batch = batch_of(plan); !batch.empty()) {
    parts.push_back(batch + (batch_origin.empty() ? "" : ", " + batch_origin));
  }
  parts.push_back(checkpointing_of(plan, facts));
  if (plan.cpu_offload) parts.emplace_back("CPU offload");
  if (plan.forward_prefetch != 0) parts.push_back(fmt::format("forward prefetch {}", plan.forward_prefetch));
  if (plan.backward_prefetch != 1) parts.push_back(fmt::format("backward prefetch {}", plan.backward_prefetch));
  if (plan.accumulation > 1 && !plan.sync_every_micro_batch) parts.emplace_back("gradients reduced once a step");
  parts.push_back(precision_of(plan, facts));
  parts.push_back(optimizer_of(plan));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace fsdp::planner
