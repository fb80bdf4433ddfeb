// rehearse: from the command line to the answer.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "core/compare.h"
#include "core/files.h"
#include "core/report_json.h"
#include "core/report_reader.h"
#include "planner/cli_commands.h"
#include "planner/cli_plan_file.h"
#include "planner/cli_values.h"
#include "planner/rehearse_plan.h"
#include "planner/rehearse_report.h"
#include "planner/rehearse_session.h"
#include "planner/rehearse_settings.h"
#include "planner/render_rehearsal.h"

namespace fsdp::planner {

namespace {

/// What a rehearsal is compared with: a report, or a plan that is predicted once it is known which rank is reported.
struct Against {
  std::optional<StepReport> report;
  std::optional<Given> plan;

  Result<StepReport> predicted(std::int64_t rank) const {
    if (report) return *report;
    return simulator::Predictor(plan->model, plan->cluster).report(plan->file.plan, rank);
  }
};

Result<std::optional<Against>> read_against(const CommandLine& line, const std::string& library) {
  const std::optional<std::string> path = line.value(Option::Against);
  if (!path) return std::nullopt;
  FSDP_TRY(const JsonDocument document, read_json_file(*path));
  Against against;
  if (document.root.find("mesh") != nullptr) {
    FSDP_TRY(against.plan, read_given(line, *path, library));
  } else {
    FSDP_TRY(against.report, read_report(document));
  }
  return against;
}

/// What is rehearsed: a script, or a plan, which is its own prediction.
struct Subject {
  RehearsalSettings settings;
  std::optional<Given> plan;
  std::optional<Against> against;
  std::optional<double> tolerance;
};

std::optional<Subject> read_subject(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  Subject subject;
  const RehearsalPlaces places = rehearsal_places_of_process();
  subject.tolerance = reader.share(Option::Tolerance);
  std::optional<RehearsalSettings> settings;
  if (!line.script.empty()) {
    subject.against = reader.keep(read_against(line, library)).value_or(std::nullopt);
    settings = reader.keep(read_rehearsal(line, library, places));
    if (line.has(Option::Python)) reader.fail(Option::Python, "The command says which Python it is.", "");
    if (subject.tolerance && !line.has(Option::Against)) {
      reader.fail(Option::Tolerance, "There is nothing to compare with.", "Add --against FILE.");
    }
  } else {
    subject.plan = reader.keep(read_given(line, line.arguments.front(), library));
    if (line.has(Option::Against)) reader.fail(Option::Against, "A plan is compared with its own prediction.", "");
    if (subject.plan) settings = reader.keep(read_plan_rehearsal(line, *subject.plan, places));
    subject.against = Against{.report = std::nullopt, .plan = subject.plan};
  }
  if (!settings) return std::nullopt;
  subject.settings = *std::move(settings);
  return subject;
}

void set_plan(StepReport& report, const Given& given) {
  report.model = given.file.plan.model;
  report.plan = given.file.plan;
}

std::string to_json(const StepReport& report, const Cluster* cluster, const Comparison* comparison) {
  JsonWriter writer;
  writer.begin_object();
  write_report_members(writer, report, cluster);
  if (comparison != nullptr) write_comparison(writer, *comparison);
  writer.end_object();
  return std::move(writer).take();
}

/// Puts the files that the reported process wrote where they were asked for.
Result<void> keep_files(const RehearsalSettings& settings, const StepReport& report, const std::vector<RankRun>& runs) {
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const RankRun& each) {
    return each.job.rank == report.rehearsal->rank && each.record->memory.peaks.device == report.memory.peaks.device;
  });
  if (run == runs.end()) return {};
  for (const auto& [from, to] :
       {std::pair{run->files.snapshot, settings.snapshot}, {run->files.trace, settings.trace}}) {
    if (to.empty()) continue;
    std::error_code error;
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
    if (error) return failure(to, fmt::format("It cannot be written: {}.", error.message()), "");
  }
  return {};
}

Outcome answer(const CommandLine& line, const Output& output, const Subject& subject, const StepReport& report,
               const RunFacts& facts, const std::optional<Comparison>& comparison) {
  const std::optional<double>& tolerance = subject.tolerance;
  const bool is_outside = comparison && tolerance && !is_within(*comparison, *tolerance);
  const ExitCode code = report.verdict == Verdict::DoesNotFit || is_outside ? kExitNo : kExitYes;
  const Comparison* compared = comparison ? &*comparison : nullptr;
  const Cluster* cluster = subject.plan ? &subject.plan->cluster : nullptr;
  const auto written = write_output_file(line, to_json(report, cluster, compared));
  if (!written) return tl::unexpected(written.error());
  if (prints_json(line, output)) {
    output.console.out << to_json(report, cluster, compared);
  } else if (output.quiet) {
    output.print({rehearsal_verdict(report), rehearsal_summary(report)});
  } else {
    std::error_code ignored;
    output.print(document_of(report, facts,
                             {.view = output.view(),
                              .tolerance = tolerance.value_or(std::numeric_limits<double>::infinity()),
                              .comparison = compared,
                              .folder = std::filesystem::current_path(ignored).string()}));
  }
  return code;
}

}  // namespace

Outcome rehearse_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output, Option::Snapshot, Option::AllocatorTrace});
  std::optional<Subject> subject = read_subject(line, output.console.library, errors);
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);

  Supervision supervision;
  const Result<TemporaryFolder> folder = TemporaryFolder::make();
  if (!folder) return tl::unexpected(Failure{folder.error(), kExitRun});
  if (subject->plan) {
    const std::string job = folder->path() + "/job.json";
    const auto written =
        write_file_atomically(job, job_text(*subject->plan, subject->settings.steps), Overwrite::Refuse);
    if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
    subject->settings.command.push_back(job);
  }
  const auto runs = rehearse_all(subject->settings, output, folder->path(), supervision);
  if (!runs) return tl::unexpected(runs.error());
  if (!*runs) {
    output.note("Interrupted. Nothing is left running.");
    return kExitInterrupted;
  }

  StepReport report = measured_report(subject->settings, (*runs)->runs);
  if (subject->plan) set_plan(report, *subject->plan);
  std::optional<Comparison> comparison;
  if (subject->against) {
    const Result<StepReport> predicted = subject->against->predicted(report.rehearsal->rank);
    if (!predicted) return input_failure(predicted.error());
    comparison = compare(*predicted, report);
  }
  const Result<void> kept = keep_files(subject->settings, report, (*runs)->runs);
  if (!kept) return tl::unexpected(Failure{kept.error(), kExitRun});
  return answer(line, output, *subject, report, (*runs)->facts, comparison);
}

}  // namespace fsdp::planner
