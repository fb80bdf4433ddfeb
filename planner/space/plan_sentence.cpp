#include "planner/space/plan_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/json_writer.h"
#include "core/base/name_ranges.h"
#include "core/frameworks/zero/zero_nvme.h"
#include "core/plan/framework_traits.h"
#include "core/plan/lora.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/quantization.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/framework_arguments.h"
#include "planner/space/strategy_names.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// We list the names of units other than blocks up to this length, and count longer lists.
constexpr std::size_t kMostNameColumns = 44;

/// How selective checkpointing treats blocks; follows their number.
std::string what_is_saved(const Checkpointing& checkpointing) {
  const std::optional<CheckpointWay> way = way_of(checkpointing);
  if (!way || way->saved == SavedOps::EverySecondMatmul) return " selectively";
  return way->saved == SavedOps::Matmuls ? " (saving matmuls and attention)" : " (saving attention)";
}

/// "checkpoint 32 of 32 blocks of encoder.layers, 12 of 32 of decoder.layers": for stacks that differ, in one mode.
std::string checkpointing_by_stack(const Plan& plan, const ModelFacts& facts) {
  const std::vector<Checkpointing::Entry>& entries = plan.checkpointing.entries;
  const auto counts = first_blocks_of(plan, facts.blocks_of_stacks);
  if (!counts || is_alike(*counts, facts.blocks_of_stacks)) return "";
  const bool is_one_mode = std::all_of(entries.begin(), entries.end(),
                                       [&](const auto& entry) { return entry.mode == entries.front().mode; });
  if (!is_one_mode) return "";
  std::vector<std::string> parts;
  for (std::size_t s = 0; s < counts->size(); ++s) {
    if ((*counts)[s] == 0) continue;
    parts.push_back(fmt::format("{} of {}{} of {}", (*counts)[s], facts.blocks_of_stacks[s].size(),
                                parts.empty() ? " blocks" : "", facts.stacks[s].name));
  }
  const bool is_selective = entries.front().mode == CheckpointMode::Selective;
  return fmt::format("checkpoint {}{}", fmt::join(parts, ", "), is_selective ? what_is_saved(plan.checkpointing) : "");
}

std::string checkpointing_of(const Plan& plan, const ModelFacts& facts) {
  const auto count = [&](CheckpointMode mode) { return std::ssize(plan.checkpointing.modules(mode)); };
  const std::int64_t full = count(CheckpointMode::Full);
  const std::int64_t selective = count(CheckpointMode::Selective);
  const std::int64_t nested = count(CheckpointMode::Nested);
  const std::int64_t reentrant = count(CheckpointMode::Reentrant);
  const auto share = [&](std::int64_t count) {
    const auto all = static_cast<std::int64_t>(facts.blocks.size());
    return count >= all ? fmt::format("all {}", text::counted(count, "block"))
                        : fmt::format("{} of {}", count, text::counted(all, "block"));
  };
  const std::string_view where = plan.checkpointing.offload_inputs ? ", inputs on the host" : "";
  if (const std::string unlike = checkpointing_by_stack(plan, facts); !unlike.empty())
    return unlike + std::string(where);
  std::string text;
  if (full > 0) text = fmt::format("checkpoint {}", share(full));
  if (nested > 0) {
    text += fmt::format("{}checkpoint {} and the modules inside", text.empty() ? "" : ", ", share(nested));
  }
  if (reentrant > 0) {
    text += fmt::format("{}checkpoint {} with use_reentrant=True", text.empty() ? "" : ", ", share(reentrant));
  }
  if (selective > 0) {
    text +=
        fmt::format("{}checkpoint {}{}", text.empty() ? "" : ", ", share(selective), what_is_saved(plan.checkpointing));
  }
  return text.empty() ? "no activation checkpointing" : text.append(where);
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
  facts.stacks = model.stacks;
  facts.blocks_of_stacks = blocks_of(model);
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
  if (plan.mixed_precision.autocast) {
    const std::string dtype = short_name(*plan.mixed_precision.autocast);
    const std::string_view more = plan.mixed_precision.float_outputs ? ", logits returned in fp32" : "";
    return fmt::format("{} weights under autocast in {}{}", named, dtype, more);
  }
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
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  if (traits_of(plan).zero_stage > 0 && plan.cpu_offload) {
    return fmt::format("{} {}", row.class_name, row.has_cpu_adam ? "(DeepSpeedCPUAdam)" : "on the CPU");
  }
  std::string text = fmt::format("{} {}", row.class_name, name_of(plan.optimizer.implementation));
  if (!has_torch_kernels(plan.optimizer)) {
    text = fmt::format("{} of {}", row.class_name, row.library.empty() ? "torch.optim" : row.library);
  }
  if (plan.optimizer.muon) text = "Muon and " + text;
  if (plan.optimizer.states == OptimizerStates::BFloat16) text += ", bf16 states";
  return text;
}

std::string batch_of(const Plan& plan) {
  const Dimension* batch = find_dimension(plan.dimensions, "batch");
  if (batch == nullptr) return "";
  const auto micro = static_cast<std::int64_t>(batch->value);
  const std::int64_t ranks = plan.mesh.world_size();
  std::string text = fmt::format("batch {}", micro);
  // One length among several follows from the others, or is of little use without them.
  const Dimension* seq = plan.dimensions.size() == 2 ? find_dimension(plan.dimensions, "seq") : nullptr;
  if (seq != nullptr) text += fmt::format(" (seq {})", shortest(seq->value));
  if (plan.accumulation > 1) text += fmt::format(" x {} accumulation", plan.accumulation);
  return fmt::format("{} x {} = {} a step", text, text::counted(ranks, "GPU"),
                     text::counted(micro * plan.accumulation * ranks, "sample"));
}

namespace {

/// The units of a plan below the root, by the kind of module that they wrap.
struct WrappedModules {
  std::size_t blocks = 0;
  std::size_t blocks_per_unit = 0;
  std::vector<std::string> parts;   ///< Names inside a block, if each block has units there: "self_attn".
  std::vector<std::string> others;  ///< Other modules.
};

/// The block that contains a module. Empty if no block does.
std::string_view block_around(std::string_view module, const ModelFacts& facts) {
  for (std::string_view above = parent_name(module); !above.empty(); above = parent_name(above)) {
    if (facts.blocks.contains(std::string(above))) return above;
  }
  return {};
}

WrappedModules wrapped_modules_of(const Plan& plan, const ModelFacts& facts) {
  WrappedModules wrapped;
  std::vector<std::string> inside;
  for (const Unit& unit : plan.units) {
    const bool is_of_blocks = std::all_of(unit.modules.begin(), unit.modules.end(),
                                          [&](const std::string& module) { return facts.blocks.contains(module); });
    if (is_of_blocks) {
      wrapped.blocks += unit.modules.size();
      wrapped.blocks_per_unit = std::max(wrapped.blocks_per_unit, unit.modules.size());
      continue;
    }
    for (const std::string& module : unit.modules) {
      const std::string_view block = block_around(module, facts);
      if (!module.empty()) (block.empty() ? wrapped.others : inside).push_back(module);
      if (block.empty()) continue;
      std::string part = module.substr(block.size() + 1);
      const bool is_new = std::find(wrapped.parts.begin(), wrapped.parts.end(), part) == wrapped.parts.end();
      if (is_new) wrapped.parts.push_back(std::move(part));
    }
  }
  // Name the parts only if each block has them.
  if (inside.size() != wrapped.parts.size() * facts.blocks.size()) {
    wrapped.others.insert(wrapped.others.begin(), inside.begin(), inside.end());
    wrapped.parts.clear();
  }
  return wrapped;
}

}  // namespace

std::string wrapping_of_plan(const Plan& plan, const ModelFacts& facts) {
  const auto [blocks, per_unit, parts, others] = wrapped_modules_of(plan, facts);
  const std::string call(traits_of(plan).call);
  std::string text = call;
  const auto all = static_cast<std::int64_t>(facts.blocks.size());
  if (blocks > 0) {
    text += blocks < facts.blocks.size() ? fmt::format(" on {} of {}", blocks, text::counted(all, "block"))
            : per_unit == 1              ? " per block"
                                         : fmt::format(" per {} blocks", per_unit);
  }
  if (!parts.empty()) {
    const std::string names = fmt::format("{}", fmt::join(fold_names(parts), ", "));
    const bool is_short = names.size() <= kMostNameColumns;
    const std::string number = text::counted(static_cast<std::int64_t>(parts.size()), "module");
    text += blocks > 0 ? fmt::format(" and its {}", is_short ? names : number + " inside")
                       : fmt::format(" on {} of each block", is_short ? names : number);
  }
  const bool has_blocks = blocks > 0 || !parts.empty();
  if (others.empty()) return has_blocks ? text : call + " on the root only";
  const std::string names = fmt::format("{}", fmt::join(fold_names(others), ", "));
  const std::string number =
      text::counted(static_cast<std::int64_t>(others.size()), has_blocks ? "other module" : "module");
  return fmt::format("{} {} {}", text, has_blocks ? "+" : "on", names.size() <= kMostNameColumns ? names : number);
}

std::string ddp_arguments(const DdpOptions& ddp) {
  std::vector<std::string> arguments;
  if (ddp.gradient_as_bucket_view) arguments.emplace_back("gradient_as_bucket_view=True");
  if (ddp.find_unused_parameters) arguments.emplace_back("find_unused_parameters=True");
  if (!ddp.broadcast_buffers) arguments.emplace_back("broadcast_buffers=False");
  if (ddp.bucket_cap_mb) arguments.push_back(fmt::format("bucket_cap_mb={}", *ddp.bucket_cap_mb));
  return fmt::format("{}", fmt::join(arguments, ", "));
}

namespace {

/// The bucket size, and the arguments that differ from DeepSpeed's defaults.
std::string zero_arguments(const Plan& plan) {
  std::vector<std::string> arguments = {fmt::format("reduce_bucket_size {}", plan.zero.reduce_bucket_size)};
  for (std::string& text : texts_of_arguments(plan.runtime.framework, arguments_of(plan))) {
    if (text != arguments.front()) arguments.push_back(std::move(text));
  }
  if (plan.zero.quantized_weights) arguments.emplace_back("quantized_weights");
  if (plan.zero.quantized_gradients) arguments.emplace_back("quantized_gradients");
  if (plan.zero.overlap_comm) arguments.emplace_back("overlap_comm");
  return fmt::format("{}", fmt::join(arguments, ", "));
}

/// Arguments of a framework without units; empty: the default ones.
std::string own_arguments(const Plan& plan) {
  switch (traits_of(plan).options) {
    case OptionsMember::Ddp:
      return plan.mesh.world_size() > 1 ? ddp_arguments(plan.ddp) : "";
    case OptionsMember::Zero:
      return zero_arguments(plan);
    default:
      return "";
  }
}

/// "FULL_SHARD (fully_shard per block, reshard_after_forward=True)".
std::string sharding_of(const Plan& plan, const ModelFacts& facts) {
  std::string name = strategy_name(plan);
  const bool is_hybrid = plan.mesh.dp_replicate() > 1 && plan.mesh.dp_shard() > 1;
  if (!traits_of(plan).wraps_units) {
    if (is_hybrid) name += fmt::format(" over ({}, {})", plan.mesh.dp_replicate(), plan.mesh.dp_shard());
    const std::string arguments = own_arguments(plan);
    return arguments.empty() ? name : fmt::format("{} ({})", name, arguments);
  }
  std::string mesh = is_hybrid ? fmt::format(" {} x {}", plan.mesh.dp_replicate(), plan.mesh.dp_shard()) : "";
  if (plan.mesh.ep > 1) mesh += fmt::format(", experts shared by {} GPUs", plan.mesh.ep);
  return fmt::format("{}{} ({}, {})", name, mesh, wrapping_of_plan(plan, facts), short_reshard(plan));
}

}  // namespace

std::string job_of(const Plan& plan) {
  std::vector<std::string> parts;
  if (plan.lora) parts.push_back(fsdp::sentence_of(*plan.lora));
  const Dimension* tokens = find_dimension(plan.dimensions, "seq");
  if (plan.packing && tokens != nullptr) {
    parts.push_back(fsdp::sentence_of(*plan.packing, static_cast<std::int64_t>(tokens->value)));
  }
  if (plan.quantization) parts.push_back(fsdp::sentence_of(*plan.quantization));
  if (plan.liger) parts.push_back(fsdp::sentence_of(*plan.liger));
  if (plan.float8) parts.push_back(fsdp::sentence_of(*plan.float8));
  for (const OtherModel& other : plan.also) parts.push_back(fsdp::sentence_of(other, plan.runtime.framework));
  const LossRow& loss = loss_row(plan.runtime.implementations.loss);
  if (loss.kind != LossKind::PyTorch) parts.emplace_back(loss.title);
  return fmt::format("{}", fmt::join(parts, " · "));
}

std::string sentence_of(const Plan& plan, const ModelFacts& facts, const std::string& batch_origin) {
  std::vector<std::string> parts = {sharding_of(plan, facts)};
  if (const std::string batch = batch_of(plan); !batch.empty()) {
    parts.push_back(batch + (batch_origin.empty() ? "" : ", " + batch_origin));
  }
  parts.push_back(checkpointing_of(plan, facts));
  if (traits_of(plan).wraps_units) {
    for (std::string& text : texts_of_arguments(plan.runtime.framework, arguments_of(plan))) {
      parts.push_back(std::move(text));
    }
  }
  if (plan.cpu_offload) parts.emplace_back(uses_drive(plan) ? "offload to NVMe" : "CPU offload");
  if (plan.forward_prefetch != 0) parts.push_back(fmt::format("forward prefetch {}", plan.forward_prefetch));
  if (plan.backward_prefetch != 1) parts.push_back(fmt::format("backward prefetch {}", plan.backward_prefetch));
  if (plan.accumulation > 1 && !plan.sync_every_micro_batch && traits_of(plan).chooses_gradient_sync)
    parts.emplace_back("gradients reduced once a step");
  parts.push_back(precision_of(plan, facts));
  parts.push_back(optimizer_of(plan));
  if (!plan.runtime.allocator_settings.empty()) parts.push_back(plan.runtime.allocator_settings);
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace fsdp::planner
