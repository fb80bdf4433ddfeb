// A configuration expresses less than a plan: it has one setting for all units, or none for a choice that a plan makes
// for each. We call an inexpressible choice a limit. A plan that exceeds no limit is exactly what the trainer runs.
// Otherwise there may be a nearest plan: each exceeded limit changes its part, and we check the result again.
//
// Sources: accelerate 1.15.0 and 1.12.0 (utils/dataclasses.py FullyShardedDataParallelPlugin, utils/fsdp_utils.py
// fsdp2_prepare_model, parallelism_config.py, accelerator.py), transformers 5.24.0 and 4.57.3 (training_args.py,
// trainer.py), torchtitan 0.3.0 (config/configs.py, trainer.py, models/*/parallelize.py) and 0.2.2
// (config/job_config.py, models/llama3/infra/parallelize.py, models/qwen3/__init__.py).
//
// Not modeled: a class derived from another one of the same model; accelerate would wrap both.

#include "planner/trainers/trainers.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

#include "core/frameworks/check_plan.h"
#include "core/plan/framework_traits.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/trainers/trainer_limits.h"

namespace fsdp::planner {

namespace {

std::optional<Error> optimizer_states(const Plan& plan, const Model&) {
  if (plan.optimizer.states == OptimizerStates::AsParameter) return std::nullopt;
  return Error{"/optimizer/states", "PyTorch's optimizers keep their states in the parameters' dtype.",
               "Plan with --optimizer-state-dtype as_parameter."};
}

std::optional<Error> prefetch(const Plan& plan, const Model&) {
  if (plan.forward_prefetch == 0 && plan.backward_prefetch == 1) return std::nullopt;
  return Error{plan.forward_prefetch != 0 ? "/forward_prefetch" : "/backward_prefetch",
               "Units are prefetched explicitly; the trainer leaves that to FSDP2's own order.",
               "Plan with --prefetch 0 --backward-prefetch 1."};
}

std::optional<Error> reductions(const Plan& plan, const Model&) {
  if (plan.reduce_scatter_buffers == 1 && !plan.separate_reduce_scatter_group) return std::nullopt;
  return Error{plan.separate_reduce_scatter_group ? "/separate_reduce_scatter_group" : "/reduce_scatter_buffers",
               "The trainer leaves FSDP2's reductions as they are.",
               "Plan with --reduce-scatter-buffers 1 --separate-reduce-scatter no."};
}

std::optional<Error> graphs(const Plan& plan, const Model&) {
  if (!plan.cuda_graphs) return std::nullopt;
  return Error{"/cuda_graphs", "The trainer captures no CUDA graphs of forward and backward.",
               "Plan with --cuda-graphs no, or export it to torchtitan 0.3."};
}

std::optional<Error> cast_inputs(const Plan& plan, const Model&) {
  if (plan.mixed_precision.cast_forward_inputs) return std::nullopt;
  return Error{"/mixed_precision/cast_forward_inputs", "The trainer casts the inputs of all units.",
               "Write true into the plan."};
}

std::optional<Error> offloaded_inputs(const Plan& plan, const Model&) {
  if (!plan.checkpointing.offload_inputs) return std::nullopt;
  return Error{"/activation_checkpointing/offload_inputs",
               "Inputs of checkpointed blocks are on the host; the trainer keeps them on the device.",
               "Plan with --checkpoint-offload no."};
}

// TRL holds a reference model as its accelerate holds the trained one (models/utils.py, prepare_fsdp).
std::optional<Error> other_models(const Plan& plan, const Model&) {
  for (std::size_t i = 0; i < plan.also.size(); ++i) {
    const OtherModel& other = plan.also[i];
    OtherModel of_trl = other;
    of_trl.wrap.reset();
    const bool is_alike = wrap_of(other, plan.runtime.framework) == wrap_of(of_trl, plan.runtime.framework) &&
                          other.offload == plan.cpu_offload;
    if (is_alike) continue;
    return Error{
        fmt::format("/model/also/{}", i),
        fmt::format("TRL holds {} by the same configuration as the trained model: {}, and on the host only if "
                    "that is there, too.",
                    other.file, traits_of(plan).has_flat_parameters ? "its blocks are units" : "all of it is one unit"),
        "Plan with --also MODEL alone, or export it to fsdp2."};
  }
  return std::nullopt;
}

std::optional<Error> titan_has_one_model(const Plan& plan, const Model&) {
  if (plan.also.empty()) return std::nullopt;
  return Error{"/model/also", "torchtitan's trainer has one model.", "Export it to fsdp2 or accelerate."};
}

std::optional<Error> other_framework(const Plan& plan, const Model&) {
  return refuse_other_frameworks(plan, "these configurations are for");
}

constexpr Limit kOffloadedInputs = {offloaded_inputs,
                                    [](Plan& plan, const Model&) { plan.checkpointing.offload_inputs = false; }};

constexpr Limit kLimitsOfAll[] = {
    // Also for FSDP1:
    {optimizer_states, [](Plan& plan, const Model&) { plan.optimizer.states = OptimizerStates::AsParameter; }},
    {prefetch,
     [](Plan& plan, const Model&) {
       plan.forward_prefetch = 0;
       plan.backward_prefetch = 1;
     }},
    {reductions,
     [](Plan& plan, const Model&) {
       plan.reduce_scatter_buffers = 1;
       plan.separate_reduce_scatter_group = false;
     }},
};

std::vector<Limit> limits_of(const TrainerRelease& release, const Plan& plan) {
  const Trainer trainer = release.trainer;
  if (trainer == Trainer::DeepSpeed) return {limits_of_deepspeed().begin(), limits_of_deepspeed().end()};
  const bool configures_fsdp1 = trainer == Trainer::Accelerate || release.can_configure_fsdp1;
  if (configures_fsdp1 && traits_of(plan).options == OptionsMember::Fsdp1) {
    std::vector<Limit> limits = {kLimitsOfAll[0]};
    if (!release.can_offload_inputs) limits.push_back(kOffloadedInputs);
    limits.insert(limits.begin(), limits_of_accelerate_fsdp1().begin(), limits_of_accelerate_fsdp1().end());
    limits.push_back({other_models, nullptr});
    if (trainer != Trainer::Transformers) return limits;
    const std::span<const Limit> of_loop = limits_of_transformers_loop(release);
    limits.insert(limits.end(), of_loop.begin(), of_loop.end());
    return limits;
  }
  // Other limits do not matter for a plan of another framework.
  std::vector<Limit> limits = {{other_framework, nullptr, true}};
  const auto add = [&](std::span<const Limit> more) { limits.insert(limits.end(), more.begin(), more.end()); };
  if (!release.can_offload_inputs) limits.push_back(kOffloadedInputs);
  limits.push_back({trainer == Trainer::Torchtitan ? titan_has_one_model : other_models, nullptr});
  if (trainer == Trainer::Torchtitan) {
    add(limits_of_torchtitan(release));
  } else {
    add(limits_of_accelerate(release));
    limits.push_back(limit_of_graphs());
    limits.push_back(limit_of_cast_inputs());
  }
  if (trainer == Trainer::Transformers) add(limits_of_transformers_loop(release));
  add(limits_of_all());
  return limits;
}

}  // namespace

Limit limit_of_graphs() {
  return {graphs, [](Plan& plan, const Model&) { plan.cuda_graphs = false; }};
}

std::span<const Limit> limits_of_all() {
  return kLimitsOfAll;
}

Limit limit_of_cast_inputs() {
  return {cast_inputs, [](Plan& plan, const Model&) { plan.mixed_precision.cast_forward_inputs = true; }};
}

std::optional<Error> not_sharded(const Plan& plan, std::string_view program) {
  if (plan.mesh.dp_shard() > 1) return std::nullopt;
  return Error{"/mesh", fmt::format("Nothing is sharded; {} has no FSDP2 without shards.", program),
               "Plan with --strategy FULL_SHARD."};
}

void shard_over_all(Plan& plan, const Model&) {
  if (plan.mesh.world_size() > 1) plan.mesh = {1, plan.mesh.world_size()};
}

std::optional<Error> not_all_blocks(const Plan& plan, const Model& model) {
  const auto& entries = plan.checkpointing.entries;
  std::set<std::string> blocks;
  for (const auto& stack : blocks_of(model)) blocks.insert(stack.begin(), stack.end());
  std::set<std::string> found;
  for (const Checkpointing::Entry& entry : entries) found.insert(entry.module);
  if (found.empty() || found == blocks) return std::nullopt;
  return Error{"/activation_checkpointing",
               fmt::format("{} of {} blocks are checkpointed; the trainer checkpoints all or none.", found.size(),
                           blocks.size()),
               "Plan with --activation-checkpointing full or none."};
}

void checkpoint_all(Plan& plan, const Model& model) {
  checkpoint(plan, model, {CheckpointMode::Full, {}});
}

std::optional<Dtype> dtype_of_shards(const Plan& plan, const Model& model) {
  if (plan.parameter_dtype) return plan.parameter_dtype;
  std::set<Dtype> dtypes;
  for (const Parameter& parameter : model.parameters) dtypes.insert(parameter.dtype);
  if (dtypes.size() != 1) return std::nullopt;
  return *dtypes.begin();
}

namespace {

/// A choice that no trainer's configuration has.
std::optional<Error> beyond_trainers(const Plan& plan, const Model& model) {
  if (has_passes(model)) {
    return Error{"/model", "The script trains its models by turns, and a trainer's configuration has one model.",
                 "Run the plan in the script: fsdp-plan run plan.json -- python train.py."};
  }
  if (plan.optimizer.muon) {
    return Error{"/optimizer/muon",
                 "A trainer's configuration names one optimizer, but Muon updates only some of the matrices.",
                 "Run the plan in the script, or export it to fsdp2."};
  }
  if (plan.mesh.ep > 1) {
    return Error{"/mesh/ep", "A trainer's configuration does not divide experts; transformers does that when it loads.",
                 "Plan without --ep, or load the model by DistributedConfig as "
                 "docs/how-to/expert-parallelism.md shows."};
  }
  if (plan.packing && plan.packing->attention == PackedAttention::Varlen) {
    return Error{"/model/packing/attention",
                 "transformers has no name for torch.nn.attention.varlen, and torchtitan 0.3.0 calls it with arguments "
                 "that PyTorch 2.11 does not have.",
                 "Plan with --packed-attention flash_attn, or export it to fsdp2."};
  }
  return std::nullopt;
}

}  // namespace

Errors unsaid(const TrainerRelease& trainer, const Plan& plan, const Model& model) {
  if (auto beyond = beyond_trainers(plan, model)) return {*std::move(beyond)};
  Errors errors;
  for (const Limit& limit : limits_of(trainer, plan)) {
    std::optional<Error> found = limit.find(plan, model);
    if (!found) continue;
    errors.push_back(*std::move(found));
    if (limit.ends) break;
  }
  return errors;
}

// transformers' Trainer expresses no more than accelerate, and has the longer list of limits.
bool is_said_exactly(const Plan& plan, const Model& model) {
  if (beyond_trainers(plan, model)) return false;
  constexpr Trainer kAll[] = {Trainer::Accelerate, Trainer::Torchtitan, Trainer::DeepSpeed};
  return std::any_of(std::begin(kAll), std::end(kAll), [&](Trainer trainer) {
    const std::vector<Limit> limits = limits_of(trainer, plan);
    return std::none_of(limits.begin(), limits.end(),
                        [&](const Limit& limit) { return limit.find(plan, model).has_value(); });
  });
}

std::vector<Trainer> said_exactly_by(const Plan& plan, const Model& model) {
  std::vector<Trainer> trainers = {Trainer::Accelerate, Trainer::Transformers, Trainer::Torchtitan, Trainer::DeepSpeed};
  std::erase_if(trainers, [&](Trainer trainer) { return !unsaid(trainer, plan, model).empty(); });
  return trainers;
}

Result<Plan> nearest_said(const TrainerRelease& trainer, Plan plan, const Model& model) {
  for (const Limit& limit : limits_of(trainer, plan)) {
    if (limit.mend != nullptr && limit.find(plan, model)) limit.mend(plan, model);
  }
  Errors errors = unsaid(trainer, plan, model);
  if (errors.empty()) errors = check(plan, model);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return plan;
}

namespace {

/// A change that saves memory and that every trainer supports, with its text.
struct Saver {
  std::string_view place;
  std::string_view words;
  void (*save)(Plan& plan, const Model& model);
};

void reshard_all(Plan& plan, const Model&) {
  for (Unit& unit : plan.units) {
    if (!is_root(unit) || traits_of(plan).has_flat_parameters)
      unit.reshard_after_forward = {ReshardAfterForward::Kind::Always, 0};
  }
}

constexpr Saver kSavers[] = {
    {"/units/reshard_after_forward", "The closest plan does not fit; units are resharded after forward.", reshard_all},
    {"/activation_checkpointing", "The closest plan does not fit; all blocks are checkpointed in full.",
     checkpoint_all},
    {"/mesh", "The closest plan does not fit; it is sharded over all GPUs.", shard_over_all},
    {"/cpu_offload", "The closest plan does not fit; parameters are offloaded.",
     [](Plan& plan, const Model&) { set_offload(plan, true); }},
};

/// The nearest plan that fits with the fewest such changes, the fastest among several. nullopt if none fits.
std::optional<SaidPlan> nearest_that_fits(const TrainerRelease& trainer, const Plan& nearest, std::int64_t rank,
                                          simulator::Predictor& predictor) {
  constexpr unsigned kSets = 1U << std::size(kSavers);
  for (int size = 1; size <= static_cast<int>(std::size(kSavers)); ++size) {
    std::optional<SaidPlan> best;
    for (unsigned set = 1; set < kSets; ++set) {
      if (std::popcount(set) != size) continue;
      Plan saving = nearest;
      Errors changes;
      for (std::size_t i = 0; i < std::size(kSavers); ++i) {
        if ((set >> i & 1U) == 0) continue;
        kSavers[i].save(saving, predictor.model());
        changes.push_back({std::string(kSavers[i].place), std::string(kSavers[i].words), {}});
      }
      const Result<Plan> said = nearest_said(trainer, std::move(saving), predictor.model());
      if (!said || *said == nearest) continue;
      Result<StepReport> report = predictor.report(*said, rank);
      if (!report || report->verdict != Verdict::Fits) continue;
      if (!best || report->time.step < best->report.time.step) best = SaidPlan{*said, *std::move(report), changes};
    }
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace

Result<SaidPlan> said_by(const TrainerRelease& trainer, const Plan& plan, const StepReport& report,
                         simulator::Predictor& predictor) {
  Errors changes = unsaid(trainer, plan, predictor.model());
  if (changes.empty()) return SaidPlan{plan, report, {}};
  Result<Plan> nearest = nearest_said(trainer, plan, predictor.model());
  if (!nearest) return tl::unexpected(std::move(changes));
  FSDP_TRY(StepReport predicted, predictor.report(*nearest, report.memory.rank));
  if (predicted.verdict != Verdict::DoesNotFit) {
    return SaidPlan{*std::move(nearest), std::move(predicted), std::move(changes)};
  }
  std::optional<SaidPlan> fitting = nearest_that_fits(trainer, *nearest, report.memory.rank, predictor);
  if (fitting) {
    append(changes, std::move(fitting->changes));
    fitting->changes = std::move(changes);
    return *std::move(fitting);
  }
  // If the given plan does not fit either, its nearest plan need not.
  if (report.verdict == Verdict::DoesNotFit) {
    return SaidPlan{*std::move(nearest), std::move(predicted), std::move(changes)};
  }
  changes.push_back({"",
                     fmt::format("No plan near it that {} can express fits, with everything resharded, checkpointed "
                                 "in full, sharded over all GPUs and offloaded.",
                                 name_of(trainer)),
                     "Plan with --for and the trainer's name, a smaller --batch, or more GPUs."});
  return tl::unexpected(std::move(changes));
}

}  // namespace fsdp::planner
