#include "core/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/model/model_index.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"

namespace fsdp {

bool is_root(const Unit& unit) {
  return std::find(unit.modules.begin(), unit.modules.end(), "") != unit.modules.end();
}

std::int64_t micro_batches_of_step(const Plan& plan) {
  return plan.accumulation * plan.mesh.data_parallel_size();
}

std::optional<Error> refuse_other_frameworks(const Plan& plan, std::string_view what) {
  if (plan.runtime.framework == kDefaultFramework) return std::nullopt;
  return Error{
      "/runtime/name",
      fmt::format("The plan is for {}, but {} only FSDP2.", name_of(kFrameworkTable, plan.runtime.framework), what),
      "Plan with --runtime fsdp2."};
}

bool is_updated_by_muon(const Plan& plan, const Parameter& parameter) {
  return plan.optimizer.muon && parameter.is_muon && parameter.receives_gradient;
}

namespace {

/// An error for a plan on which Muon fails or is not predicted, on any mesh.
std::optional<Error> muon_refusal(const Plan& plan, const Mesh& mesh, bool cpu_offload) {
  if (traits_of(plan).has_flat_parameters) {
    return Error{"optimizer", "Muon works on matrices, and FSDP1 has flat parameters.", "Plan for FSDP2 or DDP."};
  }
  if (traits_of(plan).precision == PrecisionRule::MasterCopy) {
    return Error{"optimizer", "Muon works on matrices, and ZeRO updates flat parts of them.", "Plan for FSDP2 or DDP."};
  }
  if (cpu_offload) {
    return Error{"cpu_offload", "Muon on the host is not predicted.", "Leave the optimizer on the GPU."};
  }
  if (plan.optimizer.states != OptimizerStates::AsParameter) {
    return Error{"optimizer", "torch.optim.Muon keeps its momentum in the dtype of the parameter.",
                 "Leave the precision of the optimizer's states as it is."};
  }
  const std::string_view release = torch_version_of(plan.runtime).name;
  if (mesh.dp_shard() > 1 && traits_of(plan).has_dtensors && release != "2.11") {
    return Error{"runtime",
                 fmt::format("Muon's products of sharded matrices are known for PyTorch 2.11, not for {}.", release),
                 "Plan for --torch 2.11, or with --strategy NO_SHARD."};
  }
  return std::nullopt;
}

/// A refusal of a row of the table.
std::optional<Error> refuse_optimizer(const Plan& plan, const OptimizerRefusal& refusal) {
  if (refusal.why.empty()) return std::nullopt;
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  return Error{"optimizer/kind",
               fmt::format("{} of {} under {}: {}.", row.class_name, row.library.empty() ? "PyTorch" : row.library,
                           traits_of(plan).title, refusal.why),
               std::string(refusal.hint)};
}

bool trains_16_bits(const Plan& plan, const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& parameter) {
    return parameter.receives_gradient && size_of(plan.parameter_dtype.value_or(parameter.dtype)) < Bytes(4);
  });
}

/// An error for an optimizer that is not PyTorch's foreach, fused or loop.
std::optional<Error> library_refusal(const Plan& plan, const Model& model, bool cpu_offload) {
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  const FrameworkTraits& traits = traits_of(plan);
  if (row.update == UpdateRule::Torch) return std::nullopt;
  if (traits.precision == PrecisionRule::MasterCopy) {
    return refuse_optimizer(plan, {"DeepSpeed takes it as an untested client optimizer of flat parts "
                                   "(zero_allow_untested_optimizer), which is not predicted",
                                   "Plan with --optimizer adamw, or with --runtime fsdp1 or ddp."});
  }
  if (traits.has_dtensors) {
    if (auto refusal = refuse_optimizer(plan, row.on_dtensors)) return refusal;
    if (trains_16_bits(plan, model)) {
      if (auto refusal = refuse_optimizer(plan, row.on_16_bit_dtensors)) return refusal;
    }
  }
  if (traits.gathers_each_read) {
    return refuse_optimizer(plan,
                            {"its update of SimpleFSDP's parameters is not predicted", "Plan with --runtime fsdp2."});
  }
  if (cpu_offload) {
    if (auto refusal = refuse_optimizer(plan, row.on_host)) return refusal;
  }
  const std::string_view release = torch_version_of(plan.runtime).name;
  if (row.update != UpdateRule::Kernel && release != kDefaultTorch) {
    return Error{"runtime",
                 fmt::format("The temporaries of {} are known for PyTorch {}, not for {}.", row.sentence, kDefaultTorch,
                             release),
                 fmt::format("Plan for --torch {}.", kDefaultTorch)};
  }
  if (plan.optimizer.states != OptimizerStates::AsParameter) {
    return refuse_optimizer(plan, {"the precision of its states is its own", "Leave --optimizer-state-dtype out."});
  }
  if (plan.optimizer.implementation != OptimizerImplementation::Foreach) {
    return refuse_optimizer(
        plan, {"foreach, fused and for_loop are PyTorch's choices, and it has one way", "Leave --optimizer-impl out."});
  }
  return std::nullopt;
}

/// An error for a plan of ZeRO whose optimizer DeepSpeed cannot run on the host.
std::optional<Error> zero_host_refusal(const Plan& plan) {
  const bool is_pure = !plan.mixed_precision.param_dtype && plan.parameter_dtype == Dtype::BFloat16;
  if (traits_of(plan).zero_stage == 0 || !is_pure || optimizer_row(plan.optimizer).has_cpu_adam) return std::nullopt;
  return Error{"optimizer/kind",
               "With bf16_master_weights_and_grads DeepSpeed takes only DeepSpeedCPUAdam on the host.",
               "Write adamw, or float32 for parameter_dtype and bfloat16 for param_dtype and reduce_dtype."};
}

}  // namespace

std::optional<Error> optimizer_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool cpu_offload) {
  if (auto refusal = library_refusal(plan, model, cpu_offload)) return refusal;
  if (!plan.optimizer.muon) return cpu_offload ? zero_host_refusal(plan) : std::nullopt;
  if (auto refusal = muon_refusal(plan, mesh, cpu_offload)) return refusal;
  if (mesh.dp_shard() == 1 || !traits_of(plan).wraps_units) return std::nullopt;
  const std::int64_t ranks = mesh.world_size();
  for (const Parameter& parameter : model.parameters) {
    if (!is_updated_by_muon(plan, parameter)) continue;
    const auto divides = [&](std::int64_t size) { return size % ranks == 0; };
    if (std::all_of(parameter.shape.begin(), parameter.shape.end(), divides)) continue;
    return Error{"mesh",
                 fmt::format("\"{}\" of {} x {} does not divide by {} GPUs: Muon's traffic for it is not predicted.",
                             parameter.name, parameter.shape.front(), parameter.shape.back(), ranks),
                 "Take another number of GPUs, or --strategy NO_SHARD."};
  }
  return std::nullopt;
}

// FSDP2 makes a torch.nn.Parameter of each shard before it freezes it: "only Tensors of floating point dtype can
// require gradients"; accelerate 1.15 leaves such weights whole (fsdp2_prepare_model). FSDP1: "Cannot flatten integer
// dtype tensors". Both cast what they gather to param_dtype, and packed bits are no numbers that a cast would keep.
std::optional<Error> quantization_misfit(const Plan& plan, const Model& model) {
  if (!plan.quantization) return std::nullopt;
  const FrameworkTraits& traits = traits_of(plan);
  if (traits.zero_stage > 0 || traits.gathers_each_read) {
    return Error{"--quantize", fmt::format("A quantized base is not predicted under {}.", traits.title),
                 "Plan with --runtime fsdp2, fsdp1 or ddp."};
  }
  if (!traits.wraps_units) return std::nullopt;
  const auto packed = std::find_if(model.parameters.begin(), model.parameters.end(),
                                   [](const Parameter& parameter) { return parameter.stands_for > 0; });
  if (packed == model.parameters.end()) return std::nullopt;
  if (!is_floating_point(packed->dtype)) {
    return Error{
        "--quantize",
        fmt::format("{} cannot shard {}, which are no floating point numbers.", traits.title, name_of(packed->dtype)),
        "Leave ,uint8 out: bnb_4bit_quant_storage is then the dtype of the other weights."};
  }
  const std::optional<Dtype>& compute = plan.mixed_precision.param_dtype;
  if (!compute || *compute == packed->dtype) return std::nullopt;
  return Error{"--quantize",
               fmt::format("{} would cast the packed weights, which are stored in {}, to {}, and destroy them.",
                           traits.title, name_of(packed->dtype), name_of(*compute)),
               "Compute in the dtype of the storage: --precision mixed or bf16."};
}

// The kernels are called in the parameters' own dtype and from transformers' classes. Not compared: ZeRO and
// SimpleFSDP.
std::optional<Error> liger_misfit(const Plan& plan) {
  if (!plan.liger) return std::nullopt;
  const FrameworkTraits& traits = traits_of(plan);
  if (traits.zero_stage > 0 || traits.gathers_each_read) {
    return Error{"--liger", fmt::format("Liger's kernels are not predicted under {}.", traits.title),
                 "Plan with --runtime fsdp2, fsdp1 or ddp."};
  }
  const Implementations& use = plan.runtime.implementations;
  if (use.rms_norm == RmsNormImplementation::WrittenOut && use.rotary == RotaryImplementation::Halves) {
    return std::nullopt;
  }
  return Error{"--liger",
               fmt::format("Liger replaces parts of transformers' models, not those of {}.", plan.runtime.flavor),
               "Plan with --flavor transformers, or without --liger."};
}

std::optional<Error> passes_misfit(const Plan& plan, const Model& model) {
  if (!has_passes(model)) return std::nullopt;
  const auto refuse = [](std::string where, std::string_view what, std::string hint) {
    return Error{std::move(where), fmt::format("The script trains its models by turns, {}.", what), std::move(hint)};
  };
  if (!traits_of(plan).predicts_passes) {
    return refuse(
        "runtime",
        fmt::format("which is predicted for FSDP2, not for {}", name_of(kFrameworkTable, plan.runtime.framework)),
        "Plan with --runtime fsdp2.");
  }
  if (roots_of(model).size() > static_cast<std::size_t>(kMostRoots)) {
    return refuse("model",
                  fmt::format("and there are {} of them: up to {} are predicted", roots_of(model).size(), kMostRoots),
                  "Capture them apart, or with one optimizer for several.");
  }
  const std::string_view release = torch_version_of(plan.runtime).name;
  if (release != kDefaultTorch) {
    return refuse("runtime", fmt::format("which is predicted for PyTorch {}, not for {}", kDefaultTorch, release),
                  fmt::format("Plan for --torch {}.", kDefaultTorch));
  }
  if (plan.accumulation > 1) {
    return refuse("accumulation", "so that a step has the micro-batches that it was captured with",
                  "Plan for one micro-batch a step: its samples are those of a captured batch on each GPU.");
  }
  if (plan.cpu_offload)
    return refuse("cpu_offload", "whose states on the host are not predicted", "Leave --offload out.");
  if (plan.mixed_precision.param_dtype || plan.mixed_precision.output_dtype) {
    return refuse("mixed_precision", "and FSDP2's casts for each of them are not predicted",
                  "Plan with the precision of the parameters: fp32, bf16, or the autocast of the script.");
  }
  if (plan.optimizer.clip_grad_norm) {
    return refuse("optimizer/clip_grad_norm", "and norms of one model's gradients are not predicted",
                  "Capture the script without clip_grad_norm_.");
  }
  if (plan.optimizer.muon) {
    return refuse("optimizer", "and torch.optim.Muon is not predicted for it", "Plan with one optimizer.");
  }
  if (!has_torch_kernels(plan.optimizer)) {
    return refuse("optimizer", "and optimizers of other libraries are not predicted for it", "Plan with AdamW.");
  }
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    return refuse("prefetch", "and explicit prefetches from one to another are not predicted",
                  "Leave prefetching to FSDP2: forward 0, backward 1.");
  }
  return std::nullopt;
}

Dtype zero_master_dtype(const Plan& plan) {
  return plan.parameter_dtype.value_or(Dtype::Float32);
}

Dtype zero_dtype(const Plan& plan) {
  return plan.mixed_precision.param_dtype.value_or(zero_master_dtype(plan));
}

void set_loss(Plan& plan, const Loss& loss) {
  plan.runtime.implementations.loss = loss;
  if (loss_row(loss).is_float32) plan.runtime.implementations.upcast_logits = false;
}

void set_offload(Plan& plan, bool offload) {
  plan.cpu_offload = offload;
  if (offload) return;
  plan.zero.pin_memory = true;
  plan.zero.offload_param = false;
  plan.zero.offload_ratio = 1;
  plan.zero.nvme = {};
}

ZeroOptions default_zero_options(Framework framework) {
  ZeroOptions options;
  options.overlap_comm = traits_of(framework).zero_stage == 3;
  return options;
}

int unit_of(const Plan& plan, std::string_view module) {
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const std::vector<std::string>& modules = plan.units[u].modules;
    if (std::find(modules.begin(), modules.end(), module) != modules.end()) return static_cast<int>(u);
  }
  return -1;
}

Dtype activation_dtype(const Model& model, const Plan& plan) {
  if (plan.mixed_precision.param_dtype) return *plan.mixed_precision.param_dtype;
  const bool is_autocast = plan.mixed_precision.autocast.has_value();
  if (plan.parameter_dtype && !is_autocast) return *plan.parameter_dtype;
  for (const Parameter& parameter : model.parameters) {
    const Dtype dtype = is_autocast ? stored_dtype(plan, parameter) : parameter.dtype;
    if (is_floating_point(dtype)) return dtype;
  }
  return Dtype::Float32;
}

Dtype compute_dtype(const Model& model, const Plan& plan) {
  return plan.mixed_precision.autocast.value_or(activation_dtype(model, plan));
}

Dtype stored_dtype(const Plan& plan, const Parameter& parameter) {
  const bool is_given = plan.parameter_dtype && parameter.trainable && is_floating_point(parameter.dtype);
  return is_given ? *plan.parameter_dtype : parameter.dtype;
}

bool Checkpointing::recomputes() const {
  return std::any_of(entries.begin(), entries.end(),
                     [](const Entry& entry) { return entry.mode != CheckpointMode::None; });
}

std::vector<std::string> Checkpointing::modules(CheckpointMode mode) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    if (entry.mode == mode) names.push_back(entry.module);
  }
  return names;
}

Implementations implementations_of(const Plan& plan) {
  Implementations use = plan.runtime.implementations;
  use.use_cache = use.use_cache && !plan.checkpointing.recomputes();
  use.zero3_linear = traits_of(plan).replaces_linear;
  return use;
}

Errors check_torch(const Plan& plan) {
  Errors errors;
  const TorchVersion& version = torch_version_of(plan.runtime);
  const FrameworkTraits& traits = traits_of(plan);
  if (!traits.pinned.empty() && version.name != kDefaultTorch) {
    errors.push_back({"runtime/version",
                      fmt::format("{} is predicted only on PyTorch {}, but the plan has {}.", traits.pinned,
                                  kDefaultTorch, version.name),
                      fmt::format("Write {}, or plan for --runtime fsdp2 or ddp.", kDefaultTorch)});
  }
  if (plan.cpu_offload && traits.zero_stage == 0 && !version.predicts_offload) {
    errors.push_back({"cpu_offload", fmt::format("PyTorch {}'s pinned host memory is not predicted.", version.name),
                      "Write false, or plan for --torch 2.10 or later."});
  }
  if (!plan.checkpointing.early_stop && !plan.checkpointing.entries.empty() && !version.has_early_stop) {
    errors.push_back(
        {"activation_checkpointing/early_stop",
         fmt::format("checkpoint() of PyTorch {} has no early_stop; 2.9 is the first that does.", version.name),
         "Write true."});
  }
  const auto check_setting = [&](bool is_set, std::string_view where, std::string_view setter) {
    if (!is_set) return;
    if (!traits.has_unit_setters) {
      errors.push_back({std::string(where), fmt::format("Only FSDP2 has {}.", setter), "Leave it out."});
    } else if (!version.has_reduce_scatter_settings) {
      errors.push_back({std::string(where),
                        fmt::format("PyTorch {} has no {}; 2.13 is the first that does.", version.name, setter),
                        "Leave it out, or plan for --torch 2.13 or later."});
    }
  };
  check_setting(plan.reduce_scatter_buffers != 1, "reduce_scatter_buffers", "set_reduce_scatter_max_input_buffers");
  check_setting(plan.separate_reduce_scatter_group, "separate_reduce_scatter_group",
                "set_separate_reduce_scatter_group");
  return errors;
}

}  // namespace fsdp
