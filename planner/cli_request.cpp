#include "planner/cli_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/model_library.h"
#include "core/plan_names.h"
#include "planner/cli_values.h"
#include "planner/larger_gpus.h"
#include "planner/strategy_names.h"
#include "simulator/allocator_settings.h"

namespace fsdp::planner {

namespace {

enum class Precision { BFloat16, Mixed, Float16, MixedFloat16, Float32 };
constexpr EnumName<Precision> kPrecisions[] = {
    {Precision::BFloat16, "bf16"},           {Precision::Mixed, "mixed"},  {Precision::Float16, "fp16"},
    {Precision::MixedFloat16, "fp16_mixed"}, {Precision::Float32, "fp32"}, {Precision::Mixed, "bf16_mixed"},
};
constexpr EnumTable<Precision> kPrecisionTable{"precision", kPrecisions};

void set_precision(Plan& plan, Precision precision) {
  const auto all_in = [&](Dtype dtype) {
    plan.parameter_dtype = dtype;
    plan.mixed_precision = {};
  };
  const auto mixed_in = [&](Dtype dtype) {
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.param_dtype = dtype, .reduce_dtype = Dtype::Float32};
  };
  switch (precision) {
    case Precision::BFloat16:
      return all_in(Dtype::BFloat16);
    case Precision::Float16:
      return all_in(Dtype::Float16);
    case Precision::Float32:
      return all_in(Dtype::Float32);
    case Precision::Mixed:
      return mixed_in(Dtype::BFloat16);
    case Precision::MixedFloat16:
      return mixed_in(Dtype::Float16);
  }
}

void read_optimizer(OptionReader& reader, const CommandLine& line, Optimizer& optimizer) {
  if (const auto kind = reader.choice(Option::OptimizerName, kOptimizerKindTable)) optimizer.kind = *kind;
  if (const auto implementation = reader.choice(Option::OptimizerImpl, kOptimizerImplementationTable)) {
    optimizer.implementation = *implementation;
  }
  if (const auto states = reader.choice(Option::OptimizerStatesName, kOptimizerStatesTable)) optimizer.states = *states;
  if (line.value(Option::Clip) == "none") {
    optimizer.clip_grad_norm.reset();
  } else if (const auto norm = reader.number(Option::Clip)) {
    optimizer.clip_grad_norm = *norm;
  }
}

}  // namespace

void apply_work_options(const CommandLine& line, Plan& plan, Errors& errors) {
  OptionReader reader(line, errors);
  if (const auto precision = reader.choice(Option::Precision, kPrecisionTable)) set_precision(plan, *precision);
  if (const auto text = line.value(Option::ReduceDtype)) {
    plan.mixed_precision.reduce_dtype = parse_dtype(*text);
    if (!plan.mixed_precision.reduce_dtype || !is_floating_point(*plan.mixed_precision.reduce_dtype)) {
      reader.fail(Option::ReduceDtype, fmt::format("\"{}\" is not a floating point dtype.", *text),
                  "Write float32, bfloat16 or float16.");
    }
  }
  read_optimizer(reader, line, plan.optimizer);
  if (const auto flavor = line.value(Option::Flavor)) {
    Result<Runtime> runtime = runtime_of_flavor(*flavor);
    if (runtime) plan.runtime = std::move(*runtime);
    if (!runtime) reader.fail(Option::Flavor, runtime.error()[0].what, runtime.error()[0].hint);
  }
  if (const auto settings = line.value(Option::AllocConf)) {
    const auto parsed = simulator::parse_allocator_settings(*settings);
    if (!parsed) append(errors, parsed.error());
    plan.runtime.allocator_settings = *settings;
  }
}

namespace {

/// What the user fixes of the plan, but for the mesh.
void read_space(const CommandLine& line, Space& space, Errors& errors) {
  OptionReader reader(line, errors);
  if (const auto text = line.value(Option::Reshard)) space.reshard = reader.keep(parse_reshard(*text));
  if (const auto text = line.value(Option::Wrap)) space.wrap = reader.keep(parse_wrap(*text));
  if (const auto text = line.value(Option::Checkpoint)) space.checkpoint = reader.keep(parse_checkpoint(*text));
  space.wrap_ends = reader.yes_or_no(Option::WrapEnds);
  space.cpu_offload = reader.yes_or_no(Option::Offload);
  space.forward_prefetch = reader.count(Option::Prefetch, 0);
  space.backward_prefetch = reader.count(Option::BackwardPrefetch, 0);
  space.global_batch = reader.count(Option::GlobalBatch);
  const auto accumulation = reader.count(Option::Accumulate);
  if (space.global_batch) {
    space.micro_batch = reader.count(Option::Batch);
    space.accumulation = accumulation;
  } else if (accumulation) {
    space.base.accumulation = *accumulation;
  }
}

void read_mesh(const CommandLine& line, const Cluster& cluster, Space& space, Errors& errors) {
  OptionReader reader(line, errors);
  const std::int64_t world = world_size(cluster);
  const auto shard = reader.count(Option::Shard);
  const auto replicate = reader.count(Option::Replicate);
  if (const auto name = line.value(Option::Strategy)) {
    for (const Option other : {Option::Shard, Option::Replicate, Option::Reshard}) {
      if (line.has(other)) reader.fail(other, "--strategy decides this already.", "Give one of the two.");
    }
    const Result<void> applied = apply_strategy(*name, cluster, space);
    if (!applied) append(errors, applied.error());
    return;
  }
  if (shard && replicate && *shard * *replicate != world) {
    reader.fail(Option::Replicate,
                fmt::format("{} copies over {} GPUs each need {} GPUs; there are {}.", *replicate, *shard,
                            *shard * *replicate, world),
                "Give one of the two.");
  } else if (replicate && world % *replicate != 0) {
    reader.fail(Option::Replicate, fmt::format("{} GPUs do not make {} equal groups.", world, *replicate),
                "Write a divisor of the number of GPUs.");
  } else if (replicate) {
    space.shard = world / *replicate;
    space.replicate = replicate;
  }
  if (shard) space.shard = *shard;
}

}  // namespace

Workload read_workload(const CommandLine& line, Errors& errors) {
  OptionReader reader(line, errors);
  Workload workload;
  workload.recipe = line.value(Option::Recipe).value_or("");
  workload.trainable = line.all(Option::Trainable);
  workload.frozen = line.all(Option::Freeze);
  const bool searches_batch = line.has(Option::GlobalBatch);
  if (const auto batch = reader.count(Option::Batch); batch && !searches_batch) {
    workload.dimensions.push_back({"batch", static_cast<double>(*batch)});
  }
  if (const auto seq = reader.length(Option::Sequence)) {
    workload.dimensions.push_back({"seq", static_cast<double>(*seq)});
  }
  for (const std::string& text : line.all(Option::SetDimension)) {
    const std::size_t equals = text.find('=');
    const std::optional<double> value =
        equals == std::string::npos ? std::nullopt : parse_number(std::string_view(text).substr(equals + 1));
    if (equals == 0 || !value || *value <= 0) {
      reader.fail(Option::SetDimension, fmt::format("\"{}\" is not a name and a number above 0.", text),
                  "Write it as --set seconds=10.");
      continue;
    }
    const std::string name = text.substr(0, equals);
    for (const Dimension& given : workload.dimensions) {
      if (given.name == name) reader.fail(Option::SetDimension, fmt::format("\"{}\" is given twice.", name));
    }
    workload.dimensions.push_back({name, *value});
  }
  return workload;
}

namespace {

/// Where the batch comes from, as far as no option says it.
std::string batch_origin_of(const CommandLine& line, const ModelSpec& spec, const Plan& base) {
  const bool sets_batch = std::any_of(line.all(Option::SetDimension).begin(), line.all(Option::SetDimension).end(),
                                      [](const std::string& text) { return text.starts_with("batch="); });
  const bool has_batch = line.has(Option::Batch) || sets_batch;
  const bool has_accumulation = line.has(Option::Accumulate);
  if (line.has(Option::GlobalBatch) || (has_batch && (has_accumulation || base.accumulation == 1))) return "";
  const Result<Recipe> recipe = find_recipe(spec, base.recipe);
  if (!recipe) return "";
  const bool recipe_has_batch = std::any_of(recipe->dimensions.begin(), recipe->dimensions.end(),
                                            [](const auto& dimension) { return dimension.name == "batch"; });
  const bool is_of_recipe = recipe_has_batch || recipe->accumulation > 1;
  const std::string source = is_of_recipe ? fmt::format("recipe {}", recipe->name) : std::string("the model's spec");
  if (has_batch) return fmt::format("accumulation from {}", source);
  if (has_accumulation) return fmt::format("micro-batch from {}", source);
  return fmt::format("from {}", source);
}

}  // namespace

Result<PlanRequest> read_request(const CommandLine& line, const std::string& library) {
  Errors errors;
  OptionReader reader(line, errors);
  PlanRequest request;
  request.workload = read_workload(line, errors);
  const std::string& argument = line.arguments.front();
  const auto path = reader.keep(find_model_file(argument, library));
  auto spec = path ? reader.keep(read_model_spec(*path)) : std::nullopt;
  if (spec) {
    if (auto base = reader.keep(base_plan(*spec, request.workload))) request.space.base = std::move(*base);
    request.spec = std::move(*spec);
  }
  request.space.base.model_file = argument;  // As given: a plan names no folder of this machine.
  // What the user says goes over what the recipe says.
  apply_work_options(line, request.space.base, errors);
  apply_implementations(request.space.base.runtime.implementations, request.workload);
  read_space(line, request.space, errors);
  auto cluster = reader.keep(read_machines(line, library));
  if (cluster) read_mesh(line, *cluster, request.space, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  request.cluster = std::move(*cluster);
  request.batch_origin = batch_origin_of(line, request.spec, request.space.base);
  request.batch_is_default = request.batch_origin.starts_with("from ");
  request.larger_gpus = [line, now = request.cluster, library] { return larger_gpus(line, now, false, library); };
  return request;
}

}  // namespace fsdp::planner
