// The user's choices override the file, so that a remedy can be tried beside it; we print which keys they override.
// Micro-batch and accumulation of the file are for its own number of GPUs, by DeepSpeed's rule; the user's global batch
// replaces both.

#include "planner/request/deepspeed_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/plan/framework_traits.h"
#include "planner/request/plan_machines.h"
#include "planner/space/batches.h"

namespace fsdp::planner {

namespace {

Precision precision_of(DeepSpeedPrecision precision) {
  switch (precision) {
    case DeepSpeedPrecision::Float32:
      break;
    case DeepSpeedPrecision::BFloat16:
      return Precision::Mixed;
    case DeepSpeedPrecision::PureBFloat16:
      return Precision::BFloat16;
    case DeepSpeedPrecision::Float16:
      return Precision::MixedFloat16;
  }
  return Precision::Float32;
}

PlanChoices choices_of(const DeepSpeedConfig& config, const DeepSpeedBatch& batch) {
  PlanChoices choices;
  choices.runtime = config.framework;
  choices.batch = batch.micro_batch;
  choices.accumulation = batch.accumulation;
  if (config.precision) choices.precision = precision_of(*config.precision);
  if (config.clip_grad_norm) {
    choices.clip = GradientClipping{};
    if (*config.clip_grad_norm > 0) choices.clip->norm = config.clip_grad_norm;
  }
  choices.optimizer = config.optimizer;
  if (config.optimizer) choices.optimizer_implementation = config.implementation;
  return choices;
}

PlanChoices only_one(PlanChoices choices, PlanChoice wanted) {
  for (const PlanChoice choice : plan_choices()) {
    if (choice != wanted) clear(choices, choice);
  }
  return choices;
}

/// Removes from the file's choices those that the user decides. Returns the places of those that differ.
std::vector<std::string_view> give_way(PlanChoices& of_file, const PlanChoices& given) {
  std::vector<std::string_view> places;
  const auto clear_batch = [&](PlanChoice stands) {
    const bool differs = of_file.batch || of_file.accumulation;
    if (differs) places.push_back(place_of(stands));
    of_file.batch.reset();
  };
  if (given.global_batch) {
    clear_batch(PlanChoice::GlobalBatch);
    of_file.accumulation.reset();
  } else if (find_dimension(given.dimensions, kBatchDimension) != nullptr) {
    clear_batch(PlanChoice::SetDimension);
  }
  for (const PlanChoice choice : plan_choices()) {
    if (!has(of_file, choice) || !has(given, choice)) continue;
    if (only_one(of_file, choice) != only_one(given, choice)) places.push_back(place_of(choice));
    clear(of_file, choice);
  }
  return places;
}

/// The width of the table with most rows, because tokens are embedded in the blocks' hidden size.
std::optional<std::int64_t> hidden_size_of(const Model& model) {
  std::int64_t most_rows = 0;
  std::optional<std::int64_t> width;
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (op.kind != OpKind::Embedding) continue;
      const int table = call.parameters[op.parameters.front()];
      const std::vector<std::int64_t>& shape = model.parameters[static_cast<std::size_t>(table)].shape;
      if (shape.size() != 2 || shape[0] <= most_rows) continue;
      most_rows = shape[0];
      width = shape[1];
    }
  }
  return width;
}

/// nullopt if the number of GPUs is unknown; another function reports that.
std::optional<std::int64_t> world_of(const PlanChoices& choices, const std::string& library) {
  const Result<Cluster> cluster = resolve_machines(choices, library);
  if (!cluster) return std::nullopt;
  return world_size(*cluster);
}

}  // namespace

DeepSpeedRequest with_deepspeed(const PlanRequest& given, const std::string& library, Errors& errors) {
  DeepSpeedRequest made{.request = given, .config = std::nullopt, .assumptions = {}};
  const auto& file = given.choices.deepspeed_file;
  if (!file) return made;
  if (*file == "-") {  // Several searches read it again.
    errors.push_back({std::string(place_of(PlanChoice::DeepSpeedFile)), "The standard input is for the model.",
                      "Write the name of a file."});
    return made;
  }
  Result<DeepSpeedConfig> config = read_deepspeed_config(*file);
  if (!config) {
    append(errors, std::move(config).error());
    return made;
  }
  DeepSpeedBatch batch{config->micro_batch, config->accumulation};
  if (const auto world = world_of(given.choices, library)) {
    const Result<DeepSpeedBatch> shared_out = batch_of(*config, *world, *file);
    if (shared_out) batch = *shared_out;
    const bool is_decided = given.choices.global_batch || given.choices.batch || given.choices.accumulation;
    if (!shared_out && !is_decided) append(errors, shared_out.error());
  }
  PlanChoices of_file = choices_of(*config, batch);
  std::vector<std::string_view> over_it = give_way(of_file, given.choices);
  const OffloadChoice in_file(config->offload, config->zero.nvme.optimizer);
  if (given.choices.cpu_offload.value_or(in_file) != in_file) {
    over_it.push_back(place_of(PlanChoice::Offload));
  }
  made.request.choices = with_change(std::move(of_file), given.choices);
  if (!over_it.empty()) {
    made.assumptions.push_back(fmt::format("{} {} what {} says.", fmt::join(over_it, ", "),
                                           over_it.size() == 1 ? "overrides" : "override", *file));
  }
  const bool is_its_optimizer = !given.choices.optimizer && !given.choices.optimizer_implementation;
  if (config->has_fused_adam && is_its_optimizer && !given.choices.cpu_offload.value_or(config->offload)) {
    made.assumptions.push_back(
        fmt::format("The FusedAdam that DeepSpeed makes of {} is predicted as PyTorch's fused one, which holds the "
                    "same two states.",
                    *file));
  }
  if (!config->ignored.empty()) {
    made.assumptions.push_back(
        fmt::format("{} of {} {} nothing: DeepSpeed reads no such {}.", fmt::join(config->ignored, ", "), *file,
                    config->ignored.size() == 1 ? "says" : "say", config->ignored.size() == 1 ? "key" : "keys"));
  }
  made.config = *std::move(config);
  return made;
}

std::optional<std::string> fill_auto_sizes(const DeepSpeedConfig& config, const ModelSpec& spec,
                                           const Workload& workload, ZeroOptions& zero, Errors& errors) {
  if (!config.auto_sizes.any()) return std::nullopt;
  const Result<Model> model = build_model(spec, workload);
  if (!model) return std::nullopt;  // Another function reports that.
  const std::optional<std::int64_t> width = hidden_size_of(*model);
  if (!width) {
    errors.push_back({std::string(place_of(PlanChoice::DeepSpeedFile)),
                      "transformers makes sizes that are \"auto\" of the model's hidden_size, and this model has no "
                      "embedding that tells it.",
                      "Write numbers for the buckets and thresholds of zero_optimization."});
    return std::nullopt;
  }
  fill_in(config.auto_sizes, *width, zero);
  return fmt::format(
      "\"auto\" sizes are filled in as transformers and accelerate do, for hidden_size {}: reduce_bucket_size {}{}. "
      "DeepSpeed alone takes its defaults.",
      *width, zero.reduce_bucket_size,
      traits_of(config.framework).zero_stage == 3
          ? fmt::format(", stage3_prefetch_bucket_size {}, stage3_param_persistence_threshold {}",
                        zero.prefetch_bucket_size, zero.param_persistence_threshold)
          : std::string());
}

}  // namespace fsdp::planner
