// calibrate: measures this machine through fsdp-exec at the shapes of a model, and writes a cluster file.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/cluster/cluster_reader.h"
#include "core/cluster/cpu_cluster.h"
#include "core/library/model_library.h"
#include "core/spec/captured_model.h"
#include "planner/space/space.h"
#include "runs/calibration_run.h"
#include "runs/execute_ranks.h"
#include "runs/gpus_here.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

constexpr double kDefaultBudget = 60;
constexpr std::int64_t kDefaultRounds = 3;
constexpr std::int64_t kMostRounds = 1000;
constexpr std::int64_t kMostRanks = 1024;

struct CalibrationRequest {
  ModelSpec spec;
  Workload workload;
  Plan base;
  std::vector<std::int64_t> ranks;  ///< Ascending.
  bool on_gpus = false;
  Cluster cluster;
  std::string file;
  runs::CalibrationSettings settings;
};

bool is_about_work(planner::PlanChoice choice) {
  return choice != planner::PlanChoice::Gpus && choice != planner::PlanChoice::GpuName &&
         choice != planner::PlanChoice::ClusterFile;
}

/// 1, 2, 4, ... and `most` itself.
std::vector<std::int64_t> numbers_of_ranks(std::int64_t most) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t count = 1; count < most; count *= 2) ranks.push_back(count);
  ranks.push_back(most);
  return ranks;
}

void read_work(const CommandLine& line, const Output& output, CalibrationRequest& request, Errors& errors) {
  OptionReader reader(line, errors);
  planner::PlanRequest choices = read_choices(line, errors, is_about_work);
  choices.model = line.arguments.front();
  auto spec = reader.keep(planner::read_spec(choices, output.console.library));
  if (!spec) return;
  request.spec = *std::move(spec);
  if (auto refused = refuse_captured(request.spec)) return errors.push_back(*std::move(refused));
  request.workload = workload_of(choices.choices, errors);
  auto base = reader.keep(planner::base_plan(request.spec, request.workload));
  if (!base) return;
  request.base = *std::move(base);
  planner::apply_work_choices(choices.choices, request.base, errors);
  apply_implementations(request.base.runtime.implementations, request.workload);
  // Plans lie in another folder.
  const auto file = reader.keep(find_model_file(choices.model, output.console.library));
  std::error_code ignored;
  if (file) request.base.model_file = std::filesystem::absolute(*file, ignored).string();
}

void read_machine(const CommandLine& line, const Output& output, CalibrationRequest& request, Errors& errors) {
  OptionReader reader(line, errors);
  const int gpus_here = runs::num_gpus_here();
  const bool names_gpu = line.has(Option::GpuName) || line.has(Option::ClusterFile);
  const std::optional<std::string> device = line.value(Option::Device);
  if (device && *device != "cpu" && *device != "cuda") {
    reader.fail(Option::Device, fmt::format("{} is no device.", json_quoted(*device)), "Write cpu or cuda.");
  }
  request.on_gpus = device ? *device == "cuda" : names_gpu;
  if (request.on_gpus && !names_gpu) {
    reader.fail(Option::Device, "It is unknown which GPUs these are.", "Write --gpu NAME, or --cluster FILE.");
  }
  if (!request.on_gpus && names_gpu) {
    reader.fail(line.has(Option::GpuName) ? Option::GpuName : Option::ClusterFile,
                "It names GPUs, and --device cpu measures the CPU.", "Leave one of them out.");
  }
  const std::int64_t usual = request.on_gpus ? std::max(1, gpus_here) : std::min(2, num_cores());
  const std::int64_t ranks = reader.count(Option::Gpus).value_or(usual);
  if (ranks > kMostRanks) {
    reader.fail(Option::Gpus, fmt::format("{} processes are too many for one machine.", ranks),
                fmt::format("Write at most {}.", kMostRanks));
    return;
  }
  if (request.on_gpus && ranks > gpus_here) {
    reader.fail(Option::Gpus, fmt::format("This machine has {}.", text::counted(gpus_here, "GPU")),
                "Calibrate on the GPUs' machine.");
  }
  request.ranks = numbers_of_ranks(ranks);
  if (request.on_gpus && names_gpu && errors.empty()) {
    if (auto cluster = reader.keep(read_machines(line, output.console.library))) request.cluster = *std::move(cluster);
    if (request.cluster.nodes > 1) {
      errors.push_back({"--cluster", "Only one machine is measured.", "Calibrate each kind of node by itself."});
    }
  } else if (!request.on_gpus) {
    const Bytes memory(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE));
    request.cluster = cpu_cluster(static_cast<int>(ranks), memory);
    request.cluster.gpu.num_sms.value = threads_of_rank(ranks);
  }
}

/// The key of a partial file: the model, its training, and the machine.
std::string key_of(const CalibrationRequest& request) {
  const Plan& base = request.base;
  const std::string precision = base.mixed_precision.param_dtype
                                    ? fmt::format("mixed {}", name_of(*base.mixed_precision.param_dtype))
                                    : std::string(base.parameter_dtype ? name_of(*base.parameter_dtype) : "own");
  std::string sizes;
  for (const Dimension& dimension : request.workload.dimensions) {
    sizes += fmt::format(", {} {:g}", dimension.name, dimension.value);
  }
  return fmt::format("{} in {} precision{} on up to {} of the {}", request.spec.name, precision, sizes,
                     text::counted(request.ranks.back(), "rank"), request.on_gpus ? "GPUs" : "CPU");
}

std::optional<CalibrationRequest> read_request_to_calibrate(const CommandLine& line, const Output& output,
                                                            Errors& errors) {
  OptionReader reader(line, errors);
  CalibrationRequest request;
  const auto budget = reader.number(Option::Budget);
  const auto rounds = reader.count(Option::Rounds);
  const auto program = reader.keep(runs::find_executor());
  if (const auto file = line.value(Option::Output); file && *file != "-") {
    request.file = *file;
  } else {
    errors.push_back({std::string(flag_of(Option::Output)), "The file is missing: the result is a cluster file.",
                      "Write -o cluster.json."});
  }
  read_work(line, output, request, errors);
  read_machine(line, output, request, errors);
  if (!errors.empty() || !program) return std::nullopt;
  request.settings = {.program = *program,
                      .partial = request.file + ".partial",
                      .key = key_of(request),
                      .on_gpus = request.on_gpus,
                      .budget = Seconds(budget.value_or(kDefaultBudget)),
                      .rounds = static_cast<int>(std::min(rounds.value_or(kDefaultRounds), kMostRounds))};
  return request;
}

/// Copies the figures of a GPU that were measured with the tables.
void take_figures(const MachineTables& tables, Cluster& cluster) {
  const std::string source = describe(tables);
  if (tables.context) cluster.gpu.context = {*tables.context, Provenance::Measured, source};
  if (tables.host_to_gpu) {
    const BytesPerSecond slower = std::min(*tables.host_to_gpu, tables.gpu_to_host.value_or(*tables.host_to_gpu));
    cluster.host_link.bandwidth = {slower, Provenance::Measured, source};
  }
}

std::string text_of(Cluster cluster, std::vector<MachineTables> machine) {
  if (!machine.empty()) take_figures(machine.back(), cluster);
  cluster.gpu.machine = MeasuredMachine(std::move(machine));
  JsonWriter writer;
  write_cluster(cluster, writer);
  return std::move(writer).take();
}

text::Document answer_of(const CalibrationRequest& request, const runs::CalibrationOutcome& outcome, std::size_t items,
                         bool is_quiet) {
  std::size_t ops = 0;
  for (const MachineTables& tables : outcome.machine) ops = std::max(ops, tables.ops.size());
  const bool is_whole = outcome.done == items;
  text::Entry verdict{.label = is_whole ? "CALIBRATED" : "PART",
                      .lines = {fmt::format("{} on {}: {} of {} runs, {} kinds of ops", request.spec.name,
                                            outcome.machine.empty() ? "this machine" : outcome.machine.back().processor,
                                            outcome.done, items, ops)},
                      .style = is_whole ? text::Style::Good : text::Style::Bad};
  if (outcome.found > 0) verdict.lines.push_back(fmt::format("{} of them from before", outcome.found));
  text::Document document = {std::move(verdict)};
  if (is_quiet) return document;
  for (const MachineTables& tables : outcome.machine) {
    document.push_back(text::Entry{.label = text::counted(tables.ranks, "rank"),
                                   .lines = {fmt::format("{}, {:.0f} s, others used {:.2f} cores in the busiest run",
                                                         tables.libraries, tables.spent.count(), tables.load)}});
  }
  if (!is_whole) {
    document.push_back(
        text::Entry{.label = "more",
                    .lines = {fmt::format("The same command resumes where this one ended ({}); --seconds sets its time",
                                          request.settings.partial)}});
  }
  document.push_back(text::Entry{
      .label = "use",
      .lines = {fmt::format("fsdp-plan execute PLAN --cluster {0} · fsdp-plan MODEL --cluster {0}", request.file)}});
  return document;
}

}  // namespace

CommandResult calibrate_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  std::optional<CalibrationRequest> request = read_request_to_calibrate(line, output, errors);
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto items = runs::calibration_items(request->spec, request->workload, request->base, request->ranks);
  if (!items) return input_failure(items.error());
  request->settings.tell = [&](const std::string& text) { output.note(text); };

  runs::Supervision supervision;
  const Result<runs::CalibrationOutcome> outcome = runs::run_calibration(*items, request->settings, supervision);
  if (!outcome) return tl::unexpected(Failure{outcome.error(), kExitRun});
  if (outcome->interrupted_by != 0) {
    output.note(fmt::format("{} of {} runs are in {}: the same command goes on from there.", outcome->done,
                            items->size(), request->settings.partial));
    return interrupted(output);
  }
  const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const auto written = write_file_atomically(request->file, text_of(request->cluster, outcome->machine), overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), request->file, overwrite));
  std::error_code ignored;
  if (outcome->done == items->size()) std::filesystem::remove(request->settings.partial, ignored);
  output.print(answer_of(*request, *outcome, items->size(), output.quiet));
  return kExitYes;
}

}  // namespace fsdp::command
