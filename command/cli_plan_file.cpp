#include "command/cli_plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "command/cli_lengths.h"
#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/base/parse_units.h"
#include "core/cluster/cluster_library.h"
#include "core/frameworks/check_plan.h"
#include "core/library/model_library.h"
#include "core/plan/torch_version.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

// The plan with its model. Adds contradictions between the two to `errors`.
Result<runs::Given> load(const std::string& path, const std::string& library, Errors& errors) {
  runs::Given given;
  given.path = path;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && path != "-" && find_model_file(path, library)) {
    return failure(path, "This is a model, and no plan.",
                   fmt::format("Plan it first: fsdp-plan {} --gpu \"H100 SXM\" --gpus 8 -o plan.json; then name "
                               "plan.json here.",
                               path));
  }
  FSDP_TRY(given.file, read_plan_file(given.path));
  if (given.file.cluster) {
    FSDP_TRY(const ClusterLibrary shipped, read_cluster_library(library + "/clusters"));
    take_measurements(given.file.cluster->gpu, shipped.gpus);
  }
  FSDP_TRY(PlannedModel planned, model_of_plan(given.file.plan, given.path, library));
  given.spec = std::move(planned.spec);
  given.workload = std::move(planned.workload);
  given.model = std::move(planned.model);
  append(errors, in_plan_file(check(given.file.plan, given.model), path));
  return given;
}

/// Applies the options to the plan. The rest of the plan stays unchanged, without a search.
void apply_what_if(const CommandLine& line, runs::Given& given, Errors& errors) {
  // The code for machines has read the machine options.
  const planner::PlanChoices choices = read_choices(line, errors, [](planner::PlanChoice choice) {
                                         return !planner::is_about_machines(choice);
                                       }).choices;
  Plan& plan = given.file.plan;
  planner::apply_work_choices(choices, plan, errors);
  if (line.has(Option::Lengths) && !choices.padding_mask) {
    const Dimension* batch = find_dimension(plan.dimensions, "batch");
    const auto rows = batch == nullptr ? std::optional<std::int64_t>() : static_cast<std::int64_t>(batch->value);
    if (pads_by_default(given.spec, plan.runtime.flavor, rows)) plan.runtime.implementations.padding_mask = true;
  }
  // A model flavor decides where the loss runs.
  apply_implementations(plan.runtime.implementations, given.workload);
  if (auto model = OptionReader(line, errors).keep(build_model(given.spec, given.workload))) {
    given.model = std::move(*model);
    if (choices.loss) planner::leave_to_root_what_never_runs(plan, given.model);
  }
  if (choices.cpu_offload) planner::apply_offload(plan, *choices.cpu_offload);
  if (choices.gradient_sync) plan.sync_every_micro_batch = *choices.gradient_sync == planner::GradientSync::Every;
  plan.forward_prefetch = choices.forward_prefetch.value_or(plan.forward_prefetch);
  plan.backward_prefetch = choices.backward_prefetch.value_or(plan.backward_prefetch);
  plan.reduce_scatter_buffers = choices.reduce_scatter_buffers.value_or(plan.reduce_scatter_buffers);
  plan.separate_reduce_scatter_group = choices.separate_reduce_scatter.value_or(plan.separate_reduce_scatter_group);
  plan.cuda_graphs = choices.cuda_graphs.value_or(plan.cuda_graphs);
  plan.accumulation = choices.accumulation.value_or(plan.accumulation);
  if (choices.checkpoint_offload) plan.checkpointing.offload_inputs = *choices.checkpoint_offload;
  if (choices.checkpoint) {
    const auto checkpointed = planner::checkpoint(plan, given.model, *choices.checkpoint);
    if (!checkpointed) append(errors, checkpointed.error());
  }
  // Under the names of the options that cause the errors.
  if (!choices.torch && !choices.reduce_scatter_buffers && !choices.separate_reduce_scatter) return;
  for (Error error : check_torch(plan)) {
    const bool is_of_buffers = error.where == "reduce_scatter_buffers" && choices.reduce_scatter_buffers;
    const bool is_of_group = error.where == "separate_reduce_scatter_group" && choices.separate_reduce_scatter;
    if (is_of_buffers) error.where = place_of(planner::PlanChoice::ReduceScatterBuffers);
    if (is_of_group) error.where = place_of(planner::PlanChoice::SeparateReduceScatter);
    if (!is_of_buffers && !is_of_group && choices.torch) error.where = place_of(planner::PlanChoice::Torch);
    errors.push_back(std::move(error));
  }
}

Result<Cluster> machines_of(const CommandLine& line, const runs::Given& given, const std::string& library) {
  if (given.file.cluster) return override_machines(line, *given.file.cluster, library);
  if (names_machines(line)) return read_machines(line, library);
  return failure(given.path, "The plan does not name its machines.",
                 "Write --gpus 4 --mem 16G, or --gpu T4 --gpus 4, or --cluster FILE.");
}

}  // namespace

Result<runs::Given> read_planned(const std::string& path, const std::string& library) {
  Errors errors;
  FSDP_TRY(runs::Given given, load(path, library, errors));
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return given;
}

Result<runs::Given> read_given(const CommandLine& line, const std::string& path, const std::string& library) {
  Errors errors;
  FSDP_TRY(runs::Given given, load(path, library, errors));
  Result<Cluster> cluster = machines_of(line, given, library);
  if (!cluster) {
    append(errors, std::move(cluster).error());
  } else if (given.file.plan.mesh.world_size() != world_size(*cluster)) {
    errors.push_back({path + ": /mesh",
                      fmt::format("The mesh has {} ranks, the machines have {}.", given.file.plan.mesh.world_size(),
                                  text::counted(world_size(*cluster), "GPU")),
                      "Plan again for these machines."});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  given.cluster = *std::move(cluster);
  return given;
}

tl::expected<PlanPrediction, Failure> predict_plan_file(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output, Option::Nearest});
  Result<runs::Given> given = read_given(line, line.arguments.front(), output.console.library);
  if (!given) append(errors, std::move(given).error());
  if (given) apply_what_if(line, *given, errors);
  const auto rank = read_rank(line);
  if (!rank) append(errors, rank.error());
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  for (const std::string& note : given->file.notes) output.note(fmt::format("{}: {}", given->path, note));
  simulator::Predictor predictor(given->model, given->cluster);
  Result<StepReport> report = predictor.report(given->file.plan, *rank);
  if (!report) return input_failure(in_plan_file(std::move(report).error(), line.arguments.front()));
  return PlanPrediction{*std::move(given), std::move(predictor), *std::move(report)};
}

Result<std::optional<std::int64_t>> read_rank(const CommandLine& line) {
  Errors errors;
  const std::optional<std::int64_t> rank = OptionReader(line, errors).count(Option::Rank, 0);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rank;
}

Errors check_outputs(const CommandLine& line, std::initializer_list<Option> files) {
  Errors errors;
  std::vector<std::string> taken;
  for (const Option option : files) {
    const std::optional<std::string> path = line.value(option);
    if (!path) continue;
    if (std::find(taken.begin(), taken.end(), *path) != taken.end()) {
      errors.push_back({std::string(flag_of(option)), "Another output goes to the same file.", "Give another name."});
    }
    taken.push_back(*path);
    if (*path == "-") continue;
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(*path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      errors.push_back({*path, fmt::format("There is no folder \"{}\".", folder.string()), "Create it first."});
    } else if (std::filesystem::is_directory(*path, ignored)) {
      errors.push_back({*path, "This is a folder.", "Give the name of a file."});
    } else if (!line.has(Option::Force) && std::filesystem::is_regular_file(*path, ignored)) {
      errors.push_back({*path, "The file exists.", "Add --force to overwrite it, or give another name."});
    }
  }
  return errors;
}

Failure not_written(const Errors& errors, const std::string& path, Overwrite overwrite) {
  std::error_code ignored;
  const bool is_there = overwrite == Overwrite::Refuse && std::filesystem::is_regular_file(path, ignored);
  return {errors, is_there ? kExitInput : kExitRun};
}

tl::expected<void, Failure> write_output_file(const CommandLine& line, const std::string& text) {
  const std::string path = line.value(Option::Output).value_or("");
  if (path.empty() || path == "-") return {};
  const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const auto written = write_file_atomically(path, text, overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), path, overwrite));
  return {};
}

bool prints_json(const CommandLine& line, const Output& output) {
  return output.format == text::Format::Json || line.value(Option::Output) == "-";
}

void note_decimal_sizes(const CommandLine& line, const Output& output) {
  for (const Option option : {Option::Memory, Option::ReserveMemory, Option::HostMemory, Option::NvmeCapacity}) {
    const std::optional<std::string> text = line.value(option);
    if (!text || !is_decimal_size(*text)) continue;
    const Result<Bytes> size = parse_size(*text, flag_of(option));
    if (!size) continue;
    output.note(fmt::format("{} {} is {} bytes, {}. Write G for powers of two.", flag_of(option), *text,
                            text::grouped(size->count()), format_bytes(*size)));
  }
}

}  // namespace fsdp::command
