#include "planner/request/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/foreign_files.h"
#include "core/cluster/cluster_library.h"
#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/torch_version.h"
#include "core/spec/captured_model.h"
#include "planner/request/deepspeed_choices.h"
#include "planner/request/larger_gpus.h"
#include "planner/request/packing_choice.h"
#include "planner/request/plan_machines.h"
#include "planner/request/torchtitan_choices.h"
#include "planner/search/objective.h"
#include "planner/space/batches.h"
#include "planner/space/chosen_precision.h"
#include "planner/space/default_precision.h"
#include "planner/space/framework_arguments.h"
#include "planner/space/strategy_names.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::planner {

namespace {

void fail(Errors& errors, PlanChoice choice, std::string what, std::string hint = {}) {
  errors.push_back({std::string(place_of(choice)), std::move(what), std::move(hint)});
}

template <class T>
std::optional<T> keep(Result<T> result, Errors& errors) {
  if (result) return *std::move(result);
  append(errors, std::move(result).error());
  return std::nullopt;
}

/// Applies the user's fixed choices of the plan, except the mesh.
void fix_space(const PlanChoices& choices, Space& space, Errors& errors) {
  if (choices.wrap && choices.wrap_ends && names_units(*choices.wrap)) {
    fail(errors, PlanChoice::WrapEnds,
         fmt::format("{} {} already defines the units.", place_of(PlanChoice::Wrap), to_text(*choices.wrap)),
         "Give one of the two.");
  }
  if (choices.expert_parallel) space.expert_parallel = choices.expert_parallel->ranks;
  space.reshard = choices.reshard;
  space.wrap = choices.wrap;
  space.checkpoint = choices.checkpoint;
  if (choices.checkpoint_offload) space.base.checkpointing.offload_inputs = *choices.checkpoint_offload;
  space.wrap_ends = choices.wrap_ends;
  if (choices.cpu_offload) space.cpu_offload = choices.cpu_offload->is_on;
  if (choices.cpu_offload) {
    if (auto misfit = offload_misfit(*choices.cpu_offload, choices.runtime)) errors.push_back(std::move(*misfit));
  }
  space.may_expand_segments = !choices.allocator_settings;
  space.room = Room::Either;
  if (choices.gradient_sync) space.sync_every_micro_batch = *choices.gradient_sync == GradientSync::Every;
  space.forward_prefetch = choices.forward_prefetch;
  space.backward_prefetch = choices.backward_prefetch;
  space.global_batch = choices.global_batch;
  if (space.global_batch) {
    space.micro_batch = is_packed_to_one_row(choices) ? std::optional<std::int64_t>(1) : choices.batch;
    space.accumulation = choices.accumulation;
  } else if (choices.accumulation) {
    space.base.accumulation = *choices.accumulation;
  }
  fix_graphs(choices, space);
}

/// True if a value was given and could not be read, which another error reports.
bool is_unread(const PlanRequest& request, PlanChoice choice) {
  return std::find(request.unread.begin(), request.unread.end(), choice) != request.unread.end();
}

void fix_mesh(const DeepSpeedRequest& asked, const Cluster& cluster, Space& space, Errors& errors) {
  const PlanRequest& request = asked.request;
  const PlanChoices& choices = request.choices;
  const std::int64_t world = world_size(cluster);
  if (choices.strategy) {
    for (const PlanChoice other : {PlanChoice::Shard, PlanChoice::Replicate, PlanChoice::Reshard}) {
      if (!is_unread(request, other) && !has(choices, other)) continue;
      fail(errors, other, fmt::format("{} decides this already.", place_of(PlanChoice::Strategy)),
           "Give one of the two.");
    }
    const Result<void> applied = apply_strategy(*choices.strategy, cluster, space);
    if (!applied) append(errors, applied.error());
    return;
  }
  const std::optional<std::int64_t> shard = choices.shard;
  const std::optional<std::int64_t> replicate = choices.replicate;
  if (shard && replicate && *shard * *replicate != world) {
    fail(errors, PlanChoice::Replicate,
         fmt::format("{} copies over {} GPUs each need {} GPUs; there are {}.", *replicate, *shard, *shard * *replicate,
                     world),
         "Give one of the two.");
  } else if (replicate && world % *replicate != 0) {
    fail(errors, PlanChoice::Replicate, fmt::format("{} GPUs cannot be split into {} equal groups.", world, *replicate),
         "Write a divisor of the number of GPUs.");
  } else if (replicate) {
    space.shard = world / *replicate;
    space.replicate = replicate;
  }
  if (shard) space.shard = *shard;
}

/// Applies the user's choices of FSDP2's reductions, and reports those that the release or the framework does not have.
void fix_reductions(const PlanRequest& request, Plan& base, Errors& errors) {
  const PlanChoices& choices = request.choices;
  const TorchVersion& version = torch_version_of(base.runtime);
  const bool asks_for_buffers = choices.reduce_scatter_buffers.value_or(1) != 1;
  const bool asks_for_a_group = choices.separate_reduce_scatter.value_or(false);
  for (const PlanChoice choice : {PlanChoice::ReduceScatterBuffers, PlanChoice::SeparateReduceScatter}) {
    if (!has(choices, choice) || is_unread(request, choice)) continue;
    const bool is_other = choice == PlanChoice::ReduceScatterBuffers ? asks_for_buffers : asks_for_a_group;
    if (!traits_of(base).has_unit_setters) {
      fail(errors, choice, "Only FSDP2 has this setting.", "Leave it out, or plan for --runtime fsdp2.");
    } else if (is_other && !version.has_reduce_scatter_settings && !is_unread(request, PlanChoice::Torch)) {
      fail(errors, choice, fmt::format("PyTorch {} has no such setting; 2.13 is the first that does.", version.name),
           "Leave it out, or plan for --torch 2.13 or later.");
    }
  }
  if (choices.ddp_arguments && base.runtime.framework != Framework::Ddp && !is_unread(request, PlanChoice::Ddp)) {
    fail(errors, PlanChoice::Ddp, "Only DDP has these arguments.", "Leave it out, or plan for --runtime ddp.");
  }
  if (auto misfit = graphs_misfit(base, is_unread(request, PlanChoice::Torch))) errors.push_back(*std::move(misfit));
  base.reduce_scatter_buffers = choices.reduce_scatter_buffers.value_or(1);
  base.separate_reduce_scatter_group = choices.separate_reduce_scatter.value_or(false);
}

/// FSDP1 prefetches one unit or none: forward_prefetch, and BACKWARD_PRE in backward, whose others are searched if
/// nothing is said.
std::optional<BackwardPrefetch> prefetch_of_fsdp1(const PlanChoices& choices, Space& space, Errors& errors) {
  if (traits_of(space.base).options != OptionsMember::Fsdp1) return std::nullopt;
  if (choices.forward_prefetch.value_or(0) > 1) {
    fail(errors, PlanChoice::Prefetch, "FSDP1 gathers at most one unit early.", "Write 0 or 1.");
  }
  if (choices.forward_prefetch) space.base.fsdp1.forward_prefetch = *choices.forward_prefetch == 1;
  space.forward_prefetch.reset();
  if (!choices.backward_prefetch) return std::nullopt;
  if (*choices.backward_prefetch > 1) {
    fail(errors, PlanChoice::BackwardPrefetch, "FSDP1 gathers at most one unit early.", "Write 0 or 1.");
  }
  space.backward_prefetch.reset();
  return *choices.backward_prefetch == 0 ? BackwardPrefetch::None : BackwardPrefetch::Pre;
}

constexpr std::string_view kPlanForDefault = "Leave it out, or plan for --runtime fsdp2.";

/// Refuses the choices that a framework without units or without a choice of meshes does not have.
void refuse(const PlanRequest& request, std::initializer_list<PlanChoice> all, std::string_view why, Errors& errors) {
  for (const PlanChoice choice : all) {
    if (!has(request.choices, choice) || is_unread(request, choice)) continue;
    fail(errors, choice, std::string(why), std::string(kPlanForDefault));
  }
}

void leave_units_out(Space& space) {
  space.wrap = Wrap{.blocks_per_unit = 0};
  space.wrap_ends.reset();  // Units of frozen modules neither.
}

/// DDP has no units and one mesh, and computes in the dtype of the parameters.
void fix_ddp(const PlanRequest& request, Space& space, Errors& errors) {
  const PlanChoices& choices = request.choices;
  refuse(request,
         {PlanChoice::Strategy, PlanChoice::Shard, PlanChoice::Replicate, PlanChoice::Reshard, PlanChoice::Wrap,
          PlanChoice::WrapEnds, PlanChoice::Prefetch, PlanChoice::BackwardPrefetch},
         "DDP keeps the whole model on each GPU: it does not shard, wrap or gather.", errors);
  if (choices.cpu_offload.value_or(false)) {
    fail(errors, PlanChoice::Offload, "DDP does not offload.", std::string(kPlanForDefault));
  }
  const MixedPrecision& precision = space.base.mixed_precision;
  if (precision.reduce_dtype && choices.reduce_dtype) {
    fail(errors, PlanChoice::ReduceDtype, "DDP reduces gradients in their own dtype.", "Leave it out.");
  } else if ((precision.param_dtype || precision.reduce_dtype) && !is_unread(request, PlanChoice::Precision)) {
    fail(errors, PlanChoice::Precision,
         fmt::format("DDP computes in the dtype of the parameters, and {} mixed precision.",
                     choices.precision ? "this is" : "the recipe asks for"),
         "Write autocast, accelerate, bf16, fp16 or fp32.");
  }
  space.shard = 1;
  leave_units_out(space);
  space.cpu_offloads = {false};
  // The same results with less memory.
  const DdpArguments arguments = choices.ddp_arguments.value_or(DdpArguments::Searched);
  space.base.ddp.gradient_as_bucket_view = arguments == DdpArguments::Searched;
  space.base.ddp.find_unused_parameters = arguments == DdpArguments::FindUnused;
}

/// SimpleFSDP has a mesh and no units, reduces in every micro-batch, and is made on the meta device.
void fix_simple_fsdp(const DeepSpeedRequest& asked, const Cluster& cluster, Space& space, Errors& errors) {
  const PlanRequest& request = asked.request;
  const PlanChoices& choices = request.choices;
  fix_mesh(asked, cluster, space, errors);
  if (has(choices, PlanChoice::Strategy) && !is_unread(request, PlanChoice::Strategy)) {
    fail(errors, PlanChoice::Strategy, "The mesh sets the mode of SimpleFSDP: fully_shard, hybrid_shard or replicate.",
         "Write --shard or --replicate, or leave it out.");
  }
  refuse(
      request,
      {PlanChoice::Reshard, PlanChoice::Wrap, PlanChoice::WrapEnds, PlanChoice::Prefetch, PlanChoice::BackwardPrefetch},
      "SimpleFSDP gathers each parameter when it is read: it has no units and does not prefetch.", errors);
  if (choices.gradient_sync && *choices.gradient_sync != GradientSync::Every) {
    fail(errors, PlanChoice::GradientSync, "SimpleFSDP reduces gradients after every micro-batch.",
         std::string(kPlanForDefault));
  }
  if (choices.cpu_offload.value_or(false)) {
    fail(errors, PlanChoice::Offload, "SimpleFSDP does not offload.", std::string(kPlanForDefault));
  }
  if (space.base.initialization != Initialization::Meta && !is_unread(request, PlanChoice::Initialization)) {
    fail(errors, PlanChoice::Initialization,
         "SimpleFSDP is predicted only with a model made on the meta device, as in torchtitan.", "Write meta.");
  }
  leave_units_out(space);
  space.cpu_offloads = {false};
  space.sync_every_micro_batch = true;
}

/// fp16.enabled and bf16.enabled keep an fp32 copy of the parameters; bf16_master_weights_and_grads with
/// bf16_optimizer_states keeps none. Gradients are in the parameters' dtype, and reduced in it.
void fix_zero_precision(const PlanChoices& choices, Plan& base, Errors& errors) {
  const std::optional<Dtype> compute = base.mixed_precision.param_dtype;
  const bool is_16_bit = compute == Dtype::BFloat16 || compute == Dtype::Float16;
  const bool is_mixed = base.parameter_dtype == Dtype::Float32 && is_16_bit;
  const bool is_plain = !compute && (base.parameter_dtype == Dtype::Float32 || base.parameter_dtype == Dtype::BFloat16);
  const Dtype sent = is_mixed ? *compute : base.parameter_dtype.value_or(Dtype::Float32);
  if (choices.reduce_dtype && (is_mixed || is_plain) && *choices.reduce_dtype != sent) {
    fail(errors, PlanChoice::ReduceDtype, "Another communication_data_type than the parameters' is not predicted.",
         "Leave it out.");
  } else if (!is_mixed && !is_plain) {
    fail(errors, PlanChoice::Precision,
         base.parameter_dtype == Dtype::Float16
             ? "DeepSpeed's fp16 keeps an fp32 copy of the parameters, which is mixed precision."
             : "DeepSpeed computes in bf16 or fp16 with an fp32 copy of the parameters, in bf16 alone, or in fp32.",
         base.parameter_dtype == Dtype::Float16 ? "Write fp16-mixed, or bf16, which needs none."
                                                : "Write mixed, fp16-mixed, bf16 or fp32.");
  }
  base.mixed_precision = {};
  if (is_mixed) base.mixed_precision = {.param_dtype = compute, .reduce_dtype = compute};
  if (!is_plain) base.parameter_dtype = Dtype::Float32;
}

/// DeepSpeed's ZeRO has no units and shards over all ranks.
void fix_zero(const DeepSpeedRequest& asked, const Cluster& cluster, Space& space, Errors& errors) {
  const PlanChoices& choices = asked.request.choices;
  Plan& base = space.base;
  const int stage = traits_of(base).zero_stage;
  refuse(asked.request,
         {PlanChoice::Strategy, PlanChoice::Shard, PlanChoice::Replicate, PlanChoice::Reshard, PlanChoice::Wrap,
          PlanChoice::WrapEnds, PlanChoice::Prefetch, PlanChoice::BackwardPrefetch, PlanChoice::GradientSync},
         stage == 3 ? "ZeRO-3 gathers parameters by its thresholds, and reduces gradients in each micro-batch."
                    : "ZeRO-1 and 2 keep the parameters whole on each GPU, and their stage sets what is reduced when.",
         errors);
  if (choices.optimizer_states && *choices.optimizer_states != OptimizerStates::AsParameter) {
    fail(errors, PlanChoice::OptimizerStatesName,
         "ZeRO's optimizer updates one flat tensor, with states of its dtype; others are not predicted.",
         "Write as_parameter.");
  }
  fix_zero_precision(choices, base, errors);
  space.shard = world_size(cluster);
  leave_units_out(space);
  base.sync_every_micro_batch = stage != 1;
  const bool is_its_stage = asked.config && asked.config->framework == base.runtime.framework;
  base.zero = is_its_stage ? asked.config->zero : default_zero_options(base.runtime.framework);
  if (zero_dtype(base) != Dtype::Float16) base.zero.fp16 = {};  // Another precision overrides the file's.
  if (is_its_stage && !space.cpu_offload) space.cpu_offload = asked.config->offload;
  if (choices.cpu_offload && stage == 3) {
    const bool offloads = base.cpu_offload;
    apply_offload(base, *choices.cpu_offload);
    base.cpu_offload = offloads;  // The space decides that.
  }
  space.sync_every_micro_batch = base.sync_every_micro_batch;
}

/// Applies the choices of a framework, before the machines are known and after.
struct FrameworkChoices {
  Framework framework = kDefaultFramework;
  void (*before)(const PlanRequest& request, Space& space, Errors& errors) = nullptr;
  void (*on_machines)(const DeepSpeedRequest& asked, const Cluster& cluster, Space& space, Errors& errors) = nullptr;
};
constexpr std::array kFrameworkChoices = {
    FrameworkChoices{.framework = Framework::Fsdp2, .on_machines = fix_mesh},
    FrameworkChoices{.framework = Framework::Fsdp1, .on_machines = fix_mesh},
    FrameworkChoices{.framework = Framework::Ddp, .before = fix_ddp},
    FrameworkChoices{.framework = Framework::Zero1, .on_machines = fix_zero},
    FrameworkChoices{.framework = Framework::Zero2, .on_machines = fix_zero},
    FrameworkChoices{.framework = Framework::Zero3, .on_machines = fix_zero},
    FrameworkChoices{.framework = Framework::SimpleFsdp, .on_machines = fix_simple_fsdp},
};

constexpr auto names_batch = [](const auto& dimensions) {
  return find_dimension(dimensions, kBatchDimension) != nullptr;
};

bool gives_micro_batch(const PlanChoices& choices) {
  return choices.batch || is_packed_to_one_row(choices) || names_batch(choices.dimensions);
}

std::string spec_batch_of(const ModelSpec& spec) {
  const SpecDimension* batch = find_dimension(spec.dimensions, kBatchDimension);
  return batch == nullptr ? "1" : batch->value.text;
}

/// A recipe or a spec fixes the samples of a step. The search divides them over micro-batches, and a chosen micro-batch
/// implies the accumulation. This does not hold if a batch norm's statistics are those of a micro-batch.
std::optional<std::int64_t> usual_samples(const ModelSpec& spec, Workload workload, const Plan& base) {
  std::erase_if(workload.dimensions, [](const Dimension& dimension) { return dimension.name == kBatchDimension; });
  const Result<Recipe> recipe = find_recipe(spec, base.recipe);
  const bool recipe_has_batch = recipe && names_batch(recipe->dimensions);
  const std::int64_t accumulation = recipe ? recipe->accumulation : 1;
  // A large model takes a while to build, and most specs have one sample.
  if (accumulation == 1 && !recipe_has_batch && spec_batch_of(spec) == "1") return std::nullopt;
  const Result<Model> model = build_model(spec, workload);
  if (!model) return std::nullopt;
  const Dimension* batch = find_dimension(model->dimensions, kBatchDimension);
  if (batch == nullptr) return std::nullopt;
  const std::int64_t samples = static_cast<std::int64_t>(batch->value) * accumulation;
  if (has_batch_norm(*model) || samples < 2) return std::nullopt;
  return samples;
}

/// The micro-batch that the choices fix. nullopt if it is free, or no whole number, which another error reports.
std::optional<std::int64_t> chosen_micro_batch(const PlanChoices& choices) {
  if (is_packed_to_one_row(choices)) return 1;
  if (choices.batch) return choices.batch;
  const Dimension* batch = find_dimension(choices.dimensions, kBatchDimension);
  constexpr double kMost = 1e9;
  if (batch == nullptr || batch->value < 1 || batch->value > kMost) return std::nullopt;
  return static_cast<std::int64_t>(batch->value);
}

/// Divides the usual samples of a step, over chosen micro-batches or by the search. Returns them; nullopt if the
/// choices have their number, or if nothing has.
std::optional<std::int64_t> keep_usual_samples(const PlanChoices& choices, ResolvedRequest& resolved) {
  if (choices.global_batch || choices.accumulation || choices.cuda_graphs.value_or(false)) return std::nullopt;
  Space& space = resolved.space;
  const auto usual = usual_samples(resolved.spec, resolved.workload, space.base);
  const std::optional<std::int64_t> micro_batch = chosen_micro_batch(choices);
  if (!micro_batch) space.samples_per_gpu = usual;
  if (micro_batch && usual) space.base.accumulation = accumulation_of(*usual, *micro_batch);
  return usual;
}

/// The origin of the batch, unless a choice is. `usual`: of keep_usual_samples.
std::string batch_origin_of(const PlanChoices& choices, const ResolvedRequest& resolved,
                            std::optional<std::int64_t> usual) {
  const ModelSpec& spec = resolved.spec;
  const Space& space = resolved.space;
  const bool has_batch = gives_micro_batch(choices);
  const bool has_accumulation = choices.accumulation.has_value();
  if (choices.global_batch || (has_batch && has_accumulation)) return "";
  if (has_batch && space.base.accumulation == 1 && !usual) return "";
  const Result<Recipe> recipe = find_recipe(spec, space.base.recipe);
  if (!recipe) return "";
  const bool is_of_recipe = names_batch(recipe->dimensions) || recipe->accumulation > 1;
  const std::string own = spec.captured != nullptr ? "the capture" : "the model's spec";
  const std::string source = is_of_recipe && spec.captured == nullptr ? fmt::format("recipe {}", recipe->name) : own;
  if (const auto micro_batch = chosen_micro_batch(choices); micro_batch && usual) {
    const bool are_kept = *micro_batch * space.base.accumulation == *usual;
    return are_kept ? fmt::format("as many as {} has", source)
                    : fmt::format("where {} has {}", source, *usual * world_size(resolved.cluster));
  }
  if (has_batch) return fmt::format("accumulation from {}", source);
  if (has_accumulation) return fmt::format("micro-batch from {}", source);
  return fmt::format("from {}", source);
}

bool has_unread_machines(const PlanRequest& request) {
  return std::any_of(request.unread.begin(), request.unread.end(), is_about_machines);
}

/// The assumption if a model was captured on another card than the plan's.
std::optional<std::string> captured_elsewhere(const ModelSpec& spec, const Gpu& gpu) {
  if (spec.captured == nullptr || spec.captured->gpu.empty()) return std::nullopt;
  const std::string& seen = spec.captured->gpu;
  const auto is_seen = [&](const std::string& name) { return is_same_gpu_name(name, seen); };
  if (is_seen(gpu.name) || std::any_of(gpu.aliases.begin(), gpu.aliases.end(), is_seen)) return std::nullopt;
  return fmt::format(
      "The model was captured on a stub {}. Another card may choose kernels with other temporaries: name the card to "
      "`capture` with --gpu, too.",
      seen);
}

/// Reports errors of the requested release of PyTorch.
void check_release(const PlanRequest& request, const ResolvedRequest& resolved, Errors& errors) {
  const Plan& base = resolved.space.base;
  if (!request.choices.torch || is_unread(request, PlanChoice::Torch)) return;
  for (const Error& error : check_torch(base)) {
    if (error.where == "runtime/version") fail(errors, PlanChoice::Torch, error.what, error.hint);
  }
  const TorchVersion& version = torch_version_of(base.runtime);
  const auto& captured = resolved.spec.captured;
  if (captured == nullptr || captured->framework.find(version.name) != std::string::npos) return;
  fail(errors, PlanChoice::Torch,
       fmt::format("The model was captured under {}, and its blocks are a recording of that.", captured->framework),
       fmt::format("Capture it again under PyTorch {}.", version.name));
}

/// DeepSpeed has an autocast of its own, and SimpleFSDP was not tried with it.
void check_autocast_choice(const PlanRequest& request, const Plan& base, Errors& errors) {
  const FrameworkTraits& traits = traits_of(base);
  const bool is_of_accelerate = request.choices.precision == Precision::Accelerate;
  const bool asks = is_of_accelerate || base.mixed_precision.autocast;
  if (!asks || is_unread(request, PlanChoice::Precision) || traits.predicts_autocast) return;
  std::string what = fmt::format("{} is predicted for FSDP2, FSDP1 and DDP, not for {}.",
                                 is_of_accelerate ? "What accelerate does" : "Autocast", traits.title);
  fail(errors, PlanChoice::Precision, std::move(what), "Write --precision mixed, or another --runtime.");
}

/// `known`: the spec, if it was read before.
ResolvedRequest resolve(const DeepSpeedRequest& asked, const std::string& library, const ModelSpec* known,
                        Errors& errors) {
  const PlanRequest& request = asked.request;
  const PlanChoices& choices = request.choices;
  ResolvedRequest resolved;
  resolved.workload = workload_of(choices, errors);
  read_other_models(choices.also, library, resolved.workload, errors);
  auto spec = known != nullptr ? std::optional(*known) : keep(read_spec(request, library), errors);
  if (spec) {
    if (auto base = keep(base_plan(*spec, resolved.workload), errors)) resolved.space.base = *std::move(base);
    resolved.spec = *std::move(spec);
  }
  resolved.space.base.model_file = request.model;  // As given: a plan contains no folder of this machine.
  // The user's choices override those of the recipe.
  apply_work_choices(choices, resolved.space.base, errors);
  apply_implementations(resolved.space.base.runtime.implementations, resolved.workload);
  if (spec && choices.padding_mask.value_or(false) && !makes_padding_mask(resolved.spec)) {
    fail(errors, PlanChoice::PaddingMask,
         fmt::format("{} makes no mask of padding that is predicted.", resolved.spec.name),
         "Leave it out, or capture the script that trains it.");
  }
  if (choices.padding_mask.value_or(false) && resolved.workload.packing) {
    fail(errors, PlanChoice::PaddingMask, "A packed row has no padding.", "Give one of --packing and --padding-mask.");
  }
  fix_space(choices, resolved.space, errors);
  if (has_unread_machines(request)) {
    append(errors, check_machines(choices, library));
    return resolved;
  }
  Plan& base = resolved.space.base;
  base.runtime.framework = choices.runtime.value_or(kDefaultFramework);
  const FrameworkChoices& of_framework = row_of(kFrameworkChoices, base.runtime.framework);
  fix_reductions(request, base, errors);
  check_release(request, resolved, errors);
  check_autocast_choice(request, base, errors);
  if (of_framework.before != nullptr) of_framework.before(request, resolved.space, errors);
  // If the file is not a model, we report only that, and no missing machines.
  const bool names_none =
      !choices.gpus && !choices.nodes && !choices.gpu_name && !choices.memory && !choices.cluster_file;
  if (names_none && std::any_of(errors.begin(), errors.end(), is_about_foreign_file)) return resolved;
  auto cluster = keep(resolve_machines(choices, library), errors);
  if (!cluster) return resolved;
  const PrecisionRule precision = traits_of(base).precision;
  if (!choices.precision && precision != PrecisionRule::None) {
    if (auto adapted = adapt_precision(resolved.spec, cluster->gpu, base)) {
      cluster->assumptions.push_back(*std::move(adapted));
    }
  }
  // A recipe without a dtype trains the parameters in the checkpoint's.
  const bool has_dtype = base.parameter_dtype || base.mixed_precision.param_dtype;
  if (precision == PrecisionRule::MasterCopy && !has_dtype) base.parameter_dtype = resolved.spec.dtype;
  if (of_framework.on_machines != nullptr) of_framework.on_machines(asked, *cluster, resolved.space, errors);
  const bool is_its_stage = asked.config && asked.config->framework == base.runtime.framework;
  if (spec && is_its_stage) {
    if (auto line = fill_auto_sizes(*asked.config, resolved.spec, resolved.workload, base.zero, errors)) {
      cluster->assumptions.push_back(*std::move(line));
    }
  }
  // We read a file as DeepSpeed does: keys that it does not have are DeepSpeed's defaults.
  if (!is_its_stage) {
    const auto prefetch = prefetch_of_fsdp1(choices, resolved.space, errors);
    resolved.space.arguments =
        fixed_arguments(choices, prefetch, arguments_to_search(base, world_size(*cluster), cluster->gpus_per_node));
  }
  resolved.cluster = *std::move(cluster);
  auto& assumptions = resolved.cluster.assumptions;
  assumptions.insert(assumptions.end(), asked.assumptions.begin(), asked.assumptions.end());
  if (auto other = captured_elsewhere(resolved.spec, resolved.cluster.gpu)) assumptions.push_back(*std::move(other));
  return resolved;
}

}  // namespace

void add_once(Errors& errors, const Errors& more) {
  for (const Error& error : more) {
    if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
  }
}

Workload workload_of(const PlanChoices& choices, Errors& errors) {
  Workload workload{.recipe = choices.recipe.value_or("")};
  workload.trainable = choices.trainable;
  workload.frozen = choices.frozen;
  workload.lora = choices.lora;
  workload.quantization = choices.quantization;
  workload.liger = choices.liger;
  workload.float8 = choices.float8;
  pack(choices, workload, errors);
  if (choices.batch && !choices.global_batch && !is_packed_to_one_row(choices)) {
    workload.dimensions.push_back({"batch", static_cast<double>(*choices.batch)});
  }
  const auto& tokens = choices.packing ? std::nullopt : choices.sequence;
  if (tokens) workload.dimensions.push_back({"seq", static_cast<double>(*tokens)});
  for (const Dimension& size : choices.dimensions) {
    for (const Dimension& given : workload.dimensions) {
      if (given.name == size.name) {
        fail(errors, PlanChoice::SetDimension, fmt::format("\"{}\" is given twice.", size.name));
      }
    }
    workload.dimensions.push_back(size);
  }
  return workload;
}

void apply_work_choices(const PlanChoices& choices, Plan& plan, Errors& errors) {
  if (choices.precision) {
    set_precision(plan, *choices.precision, choices.runtime.value_or(plan.runtime.framework));
  }
  if (choices.reduce_dtype) plan.mixed_precision.reduce_dtype = choices.reduce_dtype;
  Optimizer& optimizer = plan.optimizer;
  optimizer.kind = choices.optimizer.value_or(optimizer.kind);
  if (choices.optimizer || choices.muon) optimizer.muon.reset();
  if (choices.muon.value_or(false)) optimizer.muon = MuonOptions{};
  if (!has_torch_kernels(optimizer)) {  // A recipe's choices among PyTorch's ways are of PyTorch's optimizers.
    optimizer.implementation = OptimizerImplementation::Foreach;
    optimizer.states = OptimizerStates::AsParameter;
  }
  if (!optimizer_row(optimizer).moments_need_momentum) optimizer.momentum = 0;
  optimizer.implementation = choices.optimizer_implementation.value_or(optimizer.implementation);
  optimizer.states = choices.optimizer_states.value_or(optimizer.states);
  if (choices.clip) optimizer.clip_grad_norm = choices.clip->norm;
  if (choices.initialization) plan.initialization = *choices.initialization;
  if (choices.flavor) {
    const Result<Runtime> of_flavor = runtime_of_flavor(*choices.flavor);
    if (of_flavor) set_flavor(plan, *of_flavor);
    if (!of_flavor) fail(errors, PlanChoice::Flavor, of_flavor.error()[0].what, of_flavor.error()[0].hint);
  }
  if (choices.torch) {
    const Result<TorchVersion> version = find_torch_version(*choices.torch);
    if (version) set_torch_version(plan.runtime, *version);
    if (!version) fail(errors, PlanChoice::Torch, version.error()[0].what, version.error()[0].hint);
  }
  if (choices.loss) set_loss(plan, *choices.loss);
  if (choices.padding_mask) plan.runtime.implementations.padding_mask = *choices.padding_mask;
  if (choices.attention) plan.runtime.implementations.attention = *choices.attention;
  if (choices.allocator_settings) {
    const auto parsed = simulator::parse_allocator_settings(*choices.allocator_settings);
    if (!parsed) append(errors, parsed.error());
    plan.runtime.allocator_settings = *choices.allocator_settings;
  }
}

Errors check_request(const PlanRequest& request, const std::string& library) {
  Errors errors;
  const DeepSpeedRequest asked = with_deepspeed(request, library, errors);
  resolve(asked, library, nullptr, errors);
  return errors;
}

void set_objective(SearchObjective objective, const PlanChoices& choices, ResolvedRequest& request) {
  request.space.objective = objective;
  if (objective != SearchObjective::Tokens || choices.global_batch) return;
  // The workload has the micro-batch already, under any of its names.
  if (gives_micro_batch(choices)) request.space.micro_batch = 0;
  request.space.accumulation = choices.accumulation;
  request.batch_origin.clear();
}

Result<ModelSpec> read_spec(const PlanRequest& request, const std::string& library) {
  FSDP_TRY(const std::string path, find_model_file(request.model, library));
  return read_model_file(path);
}

Result<ResolvedRequest> resolve(const PlanRequest& request, const std::string& library, const ModelSpec* known) {
  Errors errors;
  const DeepSpeedRequest asked = with_deepspeed(request, library, errors);
  ResolvedRequest resolved = resolve(asked, library, known, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  keep_recorded(resolved.spec, resolved.space);
  const auto usual = keep_usual_samples(asked.request.choices, resolved);
  resolved.batch_origin = batch_origin_of(asked.request.choices, resolved, usual);
  resolved.larger_gpus = [choices = request.choices, now = resolved.cluster, library] {
    return larger_gpus(choices, now, false, library);
  };
  return resolved;
}

}  // namespace fsdp::planner
