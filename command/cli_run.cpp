// run and measure: run a training script on this machine, with a plan applied or unchanged.
//
// The script has the terminal, as if the user had started it. The hook in its processes (python/fsdp_measure) writes a
// record for each rank, of which one becomes the report.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/report/compare.h"
#include "core/report/report_json.h"
#include "core/spec/captured_model.h"
#include "render/render_run.h"
#include "runs/find_batch.h"
#include "runs/foreground.h"
#include "runs/measured_job.h"
#include "runs/rehearse_failure.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_run.h"

namespace fsdp::command {

namespace {

struct Measurement {
  runs::MeasuredJob job;
  std::optional<runs::Given> plan;
  std::optional<double> tolerance;
};

/// The command of a plan's capture, unless one is given.
std::vector<std::string> command_of(const CommandLine& line, const std::optional<runs::Given>& plan, Errors& errors) {
  if (!line.script.empty()) return line.script;
  if (!plan) return {};
  if (plan->spec.captured && !plan->spec.captured->command.empty()) {
    const CapturedModel& captured = *plan->spec.captured;
    return runs::with_batch(captured.command, captured.batch_option, batch_of(plan->model));
  }
  errors.push_back({"--", "The plan's model was not captured from a script, so there is no command to run.",
                    fmt::format("Write it: fsdp-plan run {} -- torchrun --nproc-per-node {} train.py.", plan->path,
                                plan->cluster.gpus_per_node)});
  return {};
}

Measurement read_measurement(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  Measurement measurement;
  measurement.tolerance = reader.share(Option::Tolerance);
  measurement.job.steps = reader.count(Option::Steps, 0).value_or(0);
  if (line.command == Command::Run && !line.arguments.empty()) {
    measurement.plan = reader.keep(read_given(line, line.arguments.front(), library));
  }
  measurement.job.command = command_of(line, measurement.plan, errors);
  const runs::RehearsalPlaces places = runs::rehearsal_places_of_process();
  measurement.job.python = places.python;
  if (!measurement.job.command.empty()) reader.keep(runs::find_program(measurement.job.command.front(), places.path));
  return measurement;
}

/// The failure if no rank has figures.
Failure without_figures(const runs::ExitStatus& status) {
  if (status != runs::ExitStatus{}) return {{{"", fmt::format("The command {}.", describe(status)), ""}}, kExitRun};
  return {{{"", "No torch.optim optimizer stepped in any process of the command.",
            "Does it start a Python that reads PYTHONPATH (not python -I or -E), and train on this machine?"}},
          kExitRun};
}

bool has_figures(const runs::RehearsalRecord& record) {
  return record.seen.steps > 0 || record.end == "out_of_memory";
}

CommandResult measure_in(const std::string& folder, Measurement measurement, const CommandLine& line,
                         const Output& output) {
  runs::MeasuredJob& job = measurement.job;
  job.folder = folder;
  if (measurement.plan) {
    job.apply = folder + "/applied.json";
    job.apply_name = measurement.plan->path;
    const auto written = runs::write_applied_plan(job.apply, *measurement.plan);
    if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  }
  const auto ended =
      runs::run_in_foreground({.words = job.command,
                               .environment = runs::measured_environment(job),
                               .output_to_error = prints_json(line, output) || output.format != text::Format::Table});
  if (!ended) return tl::unexpected(Failure{ended.error(), kExitRun});
  auto records = runs::read_measured(folder);
  if (!records) return tl::unexpected(Failure{records.error(), kExitRun});
  for (const runs::RehearsalRecord& record : *records) {
    if (auto reasons = runs::why_not_applied(record)) return input_failure(*std::move(reasons));
  }
  std::erase_if(*records, std::not_fn(has_figures));
  if (records->empty()) return tl::unexpected(without_figures(*ended));

  const runs::RehearsalRecord& record = *std::min_element(records->begin(), records->end(), runs::needs_more);
  const StepReport measured = runs::report_of(job, record);
  std::optional<StepReport> predicted;
  std::optional<Comparison> comparison;
  if (measurement.plan) {
    const runs::Given& given = *measurement.plan;
    auto report = simulator::Predictor(given.model, given.cluster).report(given.file.plan, record.job.rank);
    if (!report) return input_failure(report.error());
    predicted = *std::move(report);
    comparison = compare(*predicted, measured);
  }
  const render::MeasuredAnswer answer{
      .measured = measured,
      .record = record,
      .num_ranks = static_cast<std::int64_t>(records->size()),
      .ended = *ended,
      .predicted = predicted ? &*predicted : nullptr,
      .comparison = comparison ? &*comparison : nullptr,
      .tolerance = measurement.tolerance.value_or(std::numeric_limits<double>::infinity())};
  ReportAdditions additions;
  if (comparison) additions.comparison = *comparison;
  const std::string json = to_json(measured, additions);
  const auto written = write_output_file(line, json);
  if (prints_json(line, output)) {
    output.console.out << json;
  } else {
    output.print(render::document_of(answer, output.quiet));
  }
  if (!written) return tl::unexpected(written.error());
  if (*ended != runs::ExitStatus{}) return kExitRun;
  return answer.holds() ? kExitYes : kExitNo;
}

CommandResult measure(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  Measurement measurement = read_measurement(line, output.console.library, errors);
  if (!errors.empty()) return input_failure(std::move(errors));
  const Result<runs::TemporaryFolder> folder = runs::TemporaryFolder::make();
  if (!folder) return tl::unexpected(Failure{folder.error(), kExitRun});
  return measure_in(folder->path(), std::move(measurement), line, output);
}

}  // namespace

CommandResult run_command(const CommandLine& line, const Output& output) {
  return measure(line, output);
}

CommandResult measure_command(const CommandLine& line, const Output& output) {
  return measure(line, output);
}

}  // namespace fsdp::command
