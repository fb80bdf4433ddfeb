// Changes of the plan alone: it keeps less memory, or keeps it elsewhere or in fewer bytes.

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/framework_traits.h"
#include "core/plan/liger_kernels.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/quantization.h"
#include "core/plan/torch_version.h"
#include "planner/advice/changed_plans.h"
#include "planner/advice/remedy_list.h"
#include "planner/search/expandable_segments.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/plan_sentence.h"
#include "planner/space/rewrap.h"
#include "planner/space/strategy_names.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

namespace {

Plan with_checkpointing(Plan plan, const std::vector<std::vector<std::string>>& stacks, std::size_t blocks,
                        const CheckpointWay& way) {
  checkpoint_first(plan, stacks, static_cast<std::int64_t>(blocks), way);
  return plan;
}

void try_checkpointing(RemedyList& list) {
  const auto stacks = blocks_of(list.request().predictor.model());
  std::size_t longest = 0;
  for (const auto& stack : stacks) longest = std::max(longest, stack.size());
  if (longest == 0) return;
  const auto& entries = list.plan().checkpointing.entries;
  const auto counts = first_blocks_of(list.plan(), stacks);
  const bool are_alike = counts && is_alike(*counts, stacks);
  const std::size_t now = are_alike ? static_cast<std::size_t>(*std::max_element(counts->begin(), counts->end())) : 0;
  const bool is_selective = !entries.empty() && entries.front().mode == CheckpointMode::Selective;
  const CheckpointWay way = way_of(list.plan().checkpointing).value_or(CheckpointMode::Full);
  const std::size_t more = std::min(longest, now + std::max<std::size_t>(1, longest / 4));
  if (are_alike && more > now && more < longest) {
    list.try_plan(fmt::format("checkpoint {} more {}", more - now, more - now == 1 ? "block" : "blocks"),
                  {.checkpoint = CheckpointChoice{way, static_cast<std::int64_t>(more)}},
                  with_checkpointing(list.plan(), stacks, more, way));
  }
  if (now < longest) {
    list.try_plan("checkpoint all blocks", {.checkpoint = CheckpointChoice{way, {}}},
                  with_checkpointing(list.plan(), stacks, longest, way));
  }
  const CheckpointWay other = is_selective ? CheckpointMode::Full : CheckpointMode::Selective;
  const std::string other_name = is_selective ? "full" : "selective";
  list.try_plan(fmt::format("{} checkpointing of all blocks", other_name), {.checkpoint = CheckpointChoice{other, {}}},
                with_checkpointing(list.plan(), stacks, longest, other));
}

void try_checkpoint_offload(RemedyList& list) {
  Plan plan = list.plan();
  const FrameworkTraits& traits = traits_of(plan);
  const bool can = traits.offloads_inputs && plan.checkpointing.recomputes();
  const bool is_other =
      plan.checkpointing.has(CheckpointMode::Nested) || plan.checkpointing.has(CheckpointMode::Reentrant);
  if (!can || is_other || plan.checkpointing.offload_inputs) return;
  plan.checkpointing.offload_inputs = true;
  list.try_plan("inputs of checkpointed blocks in host memory", {.checkpoint_offload = true}, plan);
}

void try_optimizer(RemedyList& list) {
  Plan plan = list.plan();
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  if (plan.optimizer.implementation == OptimizerImplementation::Foreach && row.has_fused_shards) {
    plan.optimizer.implementation = OptimizerImplementation::Fused;
    list.try_plan("use the fused optimizer", {.optimizer_implementation = OptimizerImplementation::Fused}, plan);
  }
  plan = list.plan();
  if (plan.optimizer.states == OptimizerStates::AsParameter && row.has_small_states) {
    plan.optimizer.states = OptimizerStates::BFloat16;
    list.try_plan("bf16 optimizer states", {.optimizer_states = OptimizerStates::BFloat16}, plan);
  }
  plan = list.plan();
  const OptimizerKind kind = traits_of(plan).has_dtensors ? row.in_8_bits_of_dtensors : row.in_8_bits;
  if (kind == OptimizerKind::AdamW) return;
  use_8_bit_states(plan.optimizer, kind);
  list.try_plan("8-bit optimizer states", {.optimizer = kind}, plan);
}

/// Initializes shards only, if each GPU makes the whole model first.
void try_initialization(RemedyList& list) {
  Plan plan = list.plan();
  if (plan.initialization != Initialization::Device || !traits_of(plan).wraps_units) return;
  // bitsandbytes quantizes on the CPU, too, but not on the meta device.
  plan.initialization = plan.quantization ? Initialization::Cpu : Initialization::Meta;
  list.try_plan(plan.quantization ? "quantize the model in host memory, and shard it from there"
                                  : "make the model on the meta device",
                {.initialization = plan.initialization}, plan);
}

/// A base in four bits below the adapters.
void try_quantization(RemedyList& list) {
  Plan plan = list.plan();
  if (!plan.lora || plan.quantization) return;
  plan.quantization = Quantization{};
  plan.initialization = Initialization::Device;
  const RemedyRequest& request = list.request();
  Workload workload = sized_workload(request);
  workload.quantization = plan.quantization;
  const Result<Model> model = build_model(request.spec, workload);
  if (!model || quantization_misfit(plan, *model)) return;
  list.try_rebuilt({fmt::format("{} (QLoRA)", sentence_of(*plan.quantization)), {.quantization = plan.quantization}},
                   plan, workload, request.cluster);
}

/// Kernels of Liger, as many as the library has for the model, or those beside its experts.
void try_liger(RemedyList& list) {
  Plan plan = list.plan();
  const RemedyRequest& request = list.request();
  if (plan.liger || request.cluster.gpu.compute_capability == 0) return;
  for (const LigerKernels& kernels : {LigerKernels{}, LigerKernels{.all = false, .rope = true, .rms_norm = true}}) {
    plan.liger = kernels;
    if (liger_misfit(plan)) return;
    Workload workload = sized_workload(request);
    workload.liger = kernels;
    if (!build_model(request.spec, workload)) continue;
    list.try_rebuilt({fmt::format("{} (use_liger_kernel=True)", sentence_of(kernels)), {.liger = kernels}}, plan,
                     workload, request.cluster);
    return;
  }
}

/// The loss, with the trainer's key if it has one.
std::string loss_and_key(const LossRow& row) {
  const std::string_view key = !row.hugging_face.empty() ? row.hugging_face : row.calls_head ? row.torchtitan : row.trl;
  return key.empty() ? std::string(row.title) : fmt::format("{} ({})", row.title, key);
}

/// Losses that make fewer tensors as large as the logits, or none.
void try_losses(RemedyList& list) {
  const RemedyRequest& request = list.request();
  if (list.plan().runtime.implementations.loss != Loss{}) return;
  for (const LossRow& row : kLossRows) {
    // Nobody changes to an older release, or to what one trainer alone computes.
    if (row.kind == LossKind::Liger081 || row.kind == LossKind::Verl) continue;
    const Loss loss{.kind = row.kind};
    if (loss == Loss{} || (!row.runs_on_cpu && request.cluster.gpu.compute_capability == 0)) continue;
    // One that runs after the root is for a training loop that computes its loss there.
    if (row.calls_head && !list.plan().runtime.implementations.loss_after_root) continue;
    Plan plan = list.plan();
    set_loss(plan, loss);
    if (!row.takes_head) {
      list.try_plan(loss_and_key(row), {.loss = loss}, plan);
      continue;
    }
    Workload workload = sized_workload(request);
    apply_implementations(plan.runtime.implementations, workload);
    const Result<Model> model = build_model(request.spec, workload);
    if (!model) continue;
    leave_to_root_what_never_runs(plan, *model);
    list.try_rebuilt({loss_and_key(row), {.loss = loss}}, plan, workload, request.cluster);
  }
}

/// 16 bits, if the plan uses more, or computes in no dtype that the GPU has units for.
void try_precision(RemedyList& list) {
  const Gpu& gpu = list.request().cluster.gpu;
  const bool is_gpu = gpu.compute_capability > 0;
  if (!gpu.bf16 && !(is_gpu && gpu.fp16)) return;
  Plan plan = list.plan();
  const Dtype units = gpu.bf16 ? Dtype::BFloat16 : Dtype::Float16;
  const Dtype compute = activation_dtype(list.request().predictor.model(), plan);
  const bool is_autocast = plan.mixed_precision.autocast.has_value();
  const bool has_master_weights = plan.parameter_dtype == Dtype::Float32 && (compute == Dtype::BFloat16 || is_autocast);
  if (compute == Dtype::Float32 && !is_autocast && traits_of(plan).precision == PrecisionRule::None) {
    if (!gpu.bf16) return;
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.autocast = Dtype::BFloat16};
    list.try_plan("autocast in bf16", {.precision = Precision::Autocast}, plan);
  } else if (!is_autocast && (compute == Dtype::Float32 || (compute == Dtype::BFloat16 && !gpu.bf16))) {
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.param_dtype = units, .reduce_dtype = Dtype::Float32};
    list.try_plan(fmt::format("{} mixed precision", short_name(units)),
                  {.precision = gpu.bf16 ? Precision::Mixed : Precision::MixedFloat16}, plan);
  } else if (has_master_weights) {
    plan.parameter_dtype = Dtype::BFloat16;
    plan.mixed_precision = {};
    plan.fsdp1.buffer_dtype.reset();
    list.try_plan("pure bf16, without fp32 master weights", {.precision = Precision::BFloat16}, plan);
  }
}

/// Reduces gradients in the dtype of compute, as accelerate and DDP do, in half the bytes.
void try_reduction(RemedyList& list) {
  Plan plan = list.plan();
  const std::optional<Dtype> compute = plan.mixed_precision.param_dtype;
  if (compute != Dtype::BFloat16 || plan.mixed_precision.reduce_dtype != Dtype::Float32) return;
  plan.mixed_precision.reduce_dtype = compute;
  list.try_plan("reduce gradients in bf16", {.reduce_dtype = compute}, plan);
}

void try_allocator(RemedyList& list) {
  Plan plan = list.plan();
  std::string& settings = plan.runtime.allocator_settings;
  if (settings.find("expandable_segments") != std::string::npos) return;
  settings += settings.empty() ? "expandable_segments:True" : ",expandable_segments:True";
  // They do not make the same plan faster. Other plans may then fit.
  const RemedyRequest& request = list.request();
  if (request.with_segments) return list.keep(*request.with_segments, plan);
  if (request.may_gain_by_segments) {
    const Space wider = *expanded(*request.space, request.cluster);
    const Trial trial{"use expandable segments", {.allocator_settings = settings}};
    if (list.try_search(trial, request.workload, request.cluster, wider, &plan)) return;
  }
  list.try_plan("use expandable segments", {.allocator_settings = settings}, plan);
}

void try_offload(RemedyList& list) {
  Plan plan = list.plan();
  const bool lacks_host = list.request().verdict != Verdict::Fits && list.request().best.missing == Bytes(0);
  if (plan.cpu_offload) {
    set_offload(plan, false);
    if (lacks_host) list.try_plan("keep shards, gradients and optimizer on the GPU", {.cpu_offload = false}, plan);
    return;
  }
  plan.cpu_offload = true;
  list.try_plan("CPU offload", {.cpu_offload = true}, plan);
}

/// Other ways to hold the models beside the trained one.
void try_other_models(RemedyList& list) {
  const FrameworkTraits& traits = traits_of(list.plan());
  const auto try_one = [&](std::size_t i, std::string what, const OtherModel& held) {
    Plan plan = list.plan();
    plan.also[i] = held;
    list.try_plan(std::move(what), {.also = plan.also}, plan);
  };
  for (std::size_t i = 0; i < list.plan().also.size(); ++i) {
    OtherModel held = list.plan().also[i];
    const OtherWrap wrap = wrap_of(held, list.plan().runtime.framework);
    if (traits.wraps_units && wrap != OtherWrap::Blocks) {
      OtherModel cut = held;
      cut.wrap = OtherWrap::Blocks;
      try_one(i, fmt::format("wrap the blocks of {} as units", held.file), cut);
    }
    if (traits.wraps_units && !traits.has_flat_parameters && !held.offload && wrap != OtherWrap::None) {
      held.offload = true;
      try_one(i, fmt::format("keep the shards of {} in host memory", held.file), held);
      held.wrap = OtherWrap::Blocks;
      if (wrap != OtherWrap::Blocks) {
        try_one(i, fmt::format("wrap the blocks of {}, with their shards in host memory", held.file), held);
      }
    }
  }
}

void try_gradient_sync(RemedyList& list) {
  Plan plan = list.plan();
  if (plan.accumulation < 2 || !traits_of(plan).chooses_gradient_sync) return;
  if (!list.request().predictor.model().says_last_micro_batch && plan.sync_every_micro_batch) return;
  plan.sync_every_micro_batch = !plan.sync_every_micro_batch;
  const bool is_every = plan.sync_every_micro_batch;
  list.try_plan(is_every ? "reduce gradients after every micro-batch" : "reduce gradients once a step",
                {.gradient_sync = is_every ? GradientSync::Every : GradientSync::Last}, plan);
}

/// Settings that a search leaves at FSDP2's defaults. If the plan's PyTorch can run reduce-scatters apart, the search
/// covered that.
void try_collectives(RemedyList& list) {
  std::vector<ChangedPlan> changed = prefetching_more(list.plan(), 1);
  if (!torch_version_of(list.plan().runtime).has_reduce_scatter_settings) {
    for (ChangedPlan& apart : reducing_apart(list.plan())) changed.push_back(std::move(apart));
  }
  for (ChangedPlan& each : changed) list.try_plan(std::move(each.what), std::move(each.change), each.plan);
}

void try_ends(RemedyList& list) {
  const Model& model = list.request().predictor.model();
  Plan plan = list.plan();
  for (const int end : wrappables_of(model).ends) {
    const std::string& name = model.modules[end].name;
    if (unit_of(plan, name) < 0) plan.units.insert(plan.units.end() - 1, Unit{{name}, {}});
  }
  if (plan.units != list.plan().units) {
    list.try_plan("wrap embeddings and heads separately", {.wrap_ends = true}, plan);
  }
}

/// Units inside blocks, for a plan that does not fit.
void try_parts(RemedyList& list) {
  if (list.request().verdict == Verdict::Fits) return;
  const Model& model = list.request().predictor.model();
  const Wrappables wrappables = wrappables_of(model);
  const bool ends = has_ends(list.plan(), model, wrappables);
  for (const BlockParts parts : {BlockParts::Sublayers, BlockParts::Projections}) {
    const Wrap wrap{1, {}, parts};
    const Result<Plan> plan = with_wrap(list.plan(), wrap, ends, model, wrappables);
    if (!plan) return;
    if (plan->units == list.plan().units) continue;
    list.try_plan(fmt::format("wrap the {} of each block separately", to_text(wrap)), {.wrap = wrap}, *plan);
  }
}

/// A framework that shards, for a DDP plan that does not fit.
void try_fsdp2(RemedyList& list) {
  const RemedyRequest& request = list.request();
  const FrameworkTraits& traits = traits_of(list.plan());
  if (traits.wraps_units || request.space == nullptr) return;
  if (request.verdict == Verdict::Fits || list.plan().mesh.world_size() == 1) return;
  const Space ranges;
  Space space = *request.space;
  space.base.runtime.framework = kDefaultFramework;
  space.base.ddp = {};
  space.base.zero = {};
  space.arguments.clear();
  if (traits.mesh != MeshRule::Chosen) space.shard.reset();
  space.wrap.reset();
  space.wrap_ends.reset();
  space.cpu_offloads = ranges.cpu_offloads;
  PlanChoices change{.runtime = kDefaultFramework};
  // Choices that the framework made, not the user: when gradients are reduced, and in which dtype.
  if (!traits.chooses_gradient_sync) space.sync_every_micro_batch = ranges.sync_every_micro_batch;
  const bool has_copy = traits.precision == PrecisionRule::MasterCopy && space.base.mixed_precision.param_dtype;
  if (has_copy) change.reduce_dtype = space.base.mixed_precision.reduce_dtype;
  const std::string what =
      fmt::format("{} instead of {}", traits_of(kDefaultFramework).title, strategy_name(list.plan()));
  list.try_search({what, std::move(change)}, request.workload, request.cluster, space);
}

}  // namespace

// Free changes that make a step faster come first: for a large model there is no time for all.
void try_plan_changes(RemedyList& list) {
  const FrameworkTraits& traits = traits_of(list.plan());
  const bool has_policy = traits.precision == PrecisionRule::Policy;
  try_fsdp2(list);
  try_other_models(list);
  try_optimizer(list);
  try_losses(list);
  try_liger(list);
  try_quantization(list);
  if (has_policy) try_precision(list);
  try_checkpointing(list);
  try_checkpoint_offload(list);
  if (traits.may_offload) try_offload(list);
  try_gradient_sync(list);
  try_initialization(list);
  try_allocator(list);
  if (has_policy) try_reduction(list);
  if (!traits.wraps_units) return;
  try_collectives(list);
  try_ends(list);
  try_parts(list);
}

}  // namespace fsdp::planner
