#include "core/plan/expert_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/model/experts.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/torch_version.h"

namespace fsdp {

namespace {

Error misfit_of(std::string what, std::string hint) {
  return {"mesh/ep", std::move(what), std::move(hint)};
}

std::string divisors_of(std::int64_t number) {
  std::string text;
  for (std::int64_t divisor = 2; divisor <= number; ++divisor) {
    if (number % divisor == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", divisor);
  }
  return text;
}

// What runs with experts of several ranks in general.
std::optional<Error> runtime_misfit(const Plan& plan) {
  const FrameworkTraits& traits = traits_of(plan);
  if (!traits.has_unit_setters) {
    return misfit_of(
        fmt::format("Expert parallelism is predicted beside FSDP2, and this plan is for {}.", traits.title),
        "Plan for --runtime fsdp2, or without --ep.");
  }
  if (plan.runtime.flavor != "transformers") {
    return misfit_of(fmt::format("Expert parallelism is predicted as transformers {} runs it, and not for \"{}\".",
                                 kExpertParallelVersion, plan.runtime.flavor),
                     "Plan with --flavor transformers, or without --ep.");
  }
  const std::string_view release = torch_version_of(plan.runtime).name;
  if (release != "2.11") {
    return misfit_of(fmt::format("Expert parallelism is predicted for PyTorch 2.11, and not for {}.", release),
                     "Plan with --torch 2.11, or without --ep.");
  }
  return std::nullopt;
}

// DistributedConfig has one policy: fsdp_mixed_precision.
bool has_known_precision(const MixedPrecision& precision) {
  if (!precision.param_dtype) return !precision.reduce_dtype && !precision.output_dtype;
  return precision.param_dtype == Dtype::BFloat16 && precision.reduce_dtype == Dtype::Float32 &&
         !precision.output_dtype && precision.cast_forward_inputs;
}

// Choices beside which it was not run.
std::optional<Error> choice_misfit(const Plan& plan, bool cpu_offload) {
  const auto beside = [](std::string_view what, std::string_view option) {
    return misfit_of(fmt::format("Expert parallelism is not predicted beside {}.", what),
                     fmt::format("Plan without {}, or without --ep.", option));
  };
  if (plan.lora) return beside("adapters", "--lora");
  if (plan.liger) return beside("Liger's kernels", "--liger");
  if (!plan.also.empty()) return beside("another model", "--also");
  if (plan.optimizer.muon) return beside("Muon", "--muon");
  if (plan.cuda_graphs) return beside("CUDA graphs: the host reads how many tokens go where", "--cuda-graphs");
  if (plan.mixed_precision.autocast) return beside("autocast", "--precision autocast");
  if (!has_known_precision(plan.mixed_precision)) {
    return misfit_of("transformers divides experts with no mixed precision, or computes in bf16 and reduces in fp32.",
                     "Plan with --precision mixed or another of one dtype, or without --ep.");
  }
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    return beside("explicit prefetches", "--prefetch and --backward-prefetch");
  }
  if (cpu_offload) return beside("CPU offload", "--offload");
  if (plan.initialization != Initialization::Meta) {
    return misfit_of("Expert parallelism is predicted for a model that is made on the meta device.",
                     "Plan with --initialization meta, or without --ep.");
  }
  if (plan.checkpointing.offload_inputs) return beside("inputs of blocks in host memory", "--checkpoint-offload");
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  if (row.update != UpdateRule::Torch) return beside(row.class_name, fmt::format("--optimizer {}", row.name));
  return std::nullopt;
}

// What the routers' dtypes rule out.
std::optional<Error> router_misfit(const Plan& plan, const Model& model) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (op.kind != OpKind::Router || op.parameters.empty()) continue;
      const int weight = call.parameters[static_cast<std::size_t>(op.parameters.front())];
      const Dtype stored = stored_dtype(plan, model.parameters[static_cast<std::size_t>(weight)]);
      if (stored == Dtype::Float32) continue;
      return misfit_of(fmt::format("transformers keeps the routers' weights of {} in fp32 beside parameters in {}, "
                                   "which is not predicted with shared experts.",
                                   model.name, name_of(stored)),
                       "Plan with --precision mixed, or without --ep.");
    }
  }
  if (plan.checkpointing.recomputes() && !experts_can_run_again(plan, model)) {
    return misfit_of(
        "FSDP2 casts the routing weights of shared experts to bf16 in the forward pass and not when their "
        "block runs again, and torch.utils.checkpoint raises a CheckpointError.",
        "Plan with --activation-checkpointing none or --precision bf16, or without --ep.");
  }
  return std::nullopt;
}

}  // namespace

// A checkpointed block runs again at its first saved tensor. After the experts that is one of theirs: the hook on their
// gradient has run by then, and FSDPState._pre_forward returns before it casts. Linears that run later (shared experts)
// have tensors that are read first.
bool experts_can_run_again(const Plan& plan, const Model& model) {
  if (!plan.mixed_precision.param_dtype || !plan.mixed_precision.cast_forward_inputs) return true;
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[static_cast<std::size_t>(call.block)];
    for (auto op = block.ops.begin(); op != block.ops.end(); ++op) {
      if (op->kind != OpKind::GroupedExperts) continue;
      const auto& weights = block.values[static_cast<std::size_t>(op->inputs[1])].dtype;
      if (!weights || *weights == *plan.mixed_precision.param_dtype) continue;
      if (std::all_of(op + 1, block.ops.end(), [](const Op& later) { return later.parameters.empty(); })) return false;
    }
  }
  return true;
}

std::optional<Error> expert_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool cpu_offload) {
  if (mesh.ep == 1) return std::nullopt;
  if (mesh.ep < 1) return misfit_of(fmt::format("{} ranks cannot share experts.", mesh.ep), "Write 1 or more.");
  if (auto misfit = runtime_misfit(plan)) return misfit;
  const std::int64_t most = most_expert_parallel(model);
  if (most == 1) {
    return misfit_of(
        fmt::format("{} has no experts whose parameters are stacked, which ranks could share.", model.name),
        is_captured(model) ? "A captured script keeps the parallelism that it was captured with."
                           : "Plan a mixture of experts as transformers 5 builds it: \"transformers_version\": "
                             "\"5.24.0\" in its config.json.");
  }
  if (most % mesh.ep != 0) {
    return misfit_of(fmt::format("{} ranks cannot share the {} experts of a layer evenly.", mesh.ep, most),
                     fmt::format("Write one of {}.", divisors_of(most)));
  }
  if (mesh.dp_shard() % mesh.ep != 0) {
    return misfit_of(fmt::format("{} ranks share experts, but a shard group has {}.", mesh.ep, mesh.dp_shard()),
                     "Write a divisor of the shard group.");
  }
  if (auto misfit = router_misfit(plan, model)) return misfit;
  return choice_misfit(plan, cpu_offload);
}

}  // namespace fsdp
