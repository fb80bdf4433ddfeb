// rehearse: from the command line to the answer.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_rehearse_settings.h"
#include "command/cli_values.h"
#include "command/rehearse_session.h"
#include "core/base/files.h"
#include "core/base/parse_units.h"
#include "core/report/compare.h"
#include "core/report/report_json.h"
#include "core/report/report_reader.h"
#include "core/spec/captured_model.h"
#include "render/render_page.h"
#include "render/render_rehearsal.h"
#include "runs/find_batch.h"
#include "runs/plan_check.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_report.h"
#include "runs/rehearse_settings.h"

namespace fsdp::command {

namespace {

/// The other side of a rehearsal's comparison: a report, or a plan whose prediction waits until the reported rank is
/// known.
struct Against {
  std::optional<StepReport> report;
  std::optional<runs::Given> plan;

  Result<StepReport> predicted(std::int64_t rank) const {
    if (report) return *report;
    return simulator::Predictor(plan->model, plan->cluster).report(plan->file.plan, rank);
  }
};

Result<std::optional<Against>> read_against(const CommandLine& line, const std::string& library) {
  const std::optional<std::string> path = line.value(Option::CompareWith);
  if (!path) return std::nullopt;
  FSDP_TRY(const JsonDocument document, read_json_file(*path));
  Against against;
  if (document.root.find("mesh") != nullptr) {
    const CommandLine counted = line.script.empty() ? line : with_counts_of(runs::read_launch(line.script), line);
    FSDP_TRY(against.plan, read_given(counted, *path, library));
  } else {
    FSDP_TRY(against.report, read_report(document));
  }
  return against;
}

/// The subject of a rehearsal: a script, a plan, which is its own prediction, or a script with a plan applied.
struct Subject {
  runs::RehearsalSettings settings;
  std::optional<runs::Given> plan;
  std::optional<runs::Given> applied;
  std::optional<Against> against;
  std::optional<double> tolerance;
  bool is_compared_with_other = false;  // With --compare-with, not with the plan that runs.
  std::optional<std::string> batch;     // The words that set the command's batch: "--batch-size {}".

  /// The plan that runs, in its own model or in a script; null if there is none.
  const runs::Given* given() const { return plan ? &*plan : applied ? &*applied : nullptr; }

  /// Names of terms that differ by more than their limits. If a plan runs, collectives must be equal, and memory within
  /// kPlanTolerance or the requested tolerance; otherwise only the requested tolerance applies.
  std::vector<std::string> beyond(const Comparison& comparison) const {
    std::vector<std::string> names;
    if (given() != nullptr && !is_compared_with_other) {
      const std::vector<std::string> own = runs::own_collectives(*given());
      for (const ComparedTerm& term : runs::checked(comparison, given()->cluster, tolerance, own).beyond)
        names.push_back(term.name);
    } else if (tolerance) {
      for (const ComparedTerm& term : comparison.terms) {
        if (std::abs(term.relative()) > *tolerance) names.push_back(term.name);
      }
    }
    return names;
  }
};

constexpr std::int64_t kMostBatch = std::int64_t{1} << 20;

/// A script: its settings, the plan to apply, and the other side of the comparison.
std::optional<runs::RehearsalSettings> read_script(const CommandLine& line, const std::string& library,
                                                   const runs::RehearsalPlaces& places, Subject& subject,
                                                   OptionReader& reader) {
  subject.against = reader.keep(read_against(line, library)).value_or(std::nullopt);
  subject.is_compared_with_other = line.has(Option::CompareWith);
  const std::optional<std::string> apply = line.value(Option::Apply);
  if (apply) subject.applied = reader.keep(read_given(line, *apply, library));
  if (line.has(Option::Python)) reader.fail(Option::Python, "The command already names its Python.", "");
  if (subject.tolerance && !line.has(Option::CompareWith) && (!apply || subject.batch)) {
    reader.fail(Option::Tolerance, "There is nothing to compare with.", "Add --compare-with FILE.");
  }
  if (apply && !subject.applied) return std::nullopt;
  if (subject.applied && !subject.against) subject.against = Against{.report = std::nullopt, .plan = subject.applied};
  return reader.keep(read_rehearsal(line, library, places, subject.applied ? &*subject.applied : nullptr));
}

/// A plan of a captured model is rehearsed in the captured script.
std::optional<runs::RehearsalSettings> read_captured_script(const CommandLine& line, const std::string& library,
                                                            const runs::RehearsalPlaces& places, Subject& subject,
                                                            OptionReader& reader) {
  subject.applied = std::exchange(subject.plan, std::nullopt);
  const CapturedModel& captured = *subject.applied->spec.captured;
  if (line.has(Option::Python)) reader.fail(Option::Python, "The captured command names its Python.", "");
  CommandLine script = line;
  script.script = runs::with_batch(captured.command, captured.batch_option, batch_of(subject.applied->model));
  if (script.script.empty()) {
    reader.fail(Option::Apply, "The capture does not name the command that it was made of.",
                "Write rehearse --apply PLAN -- COMMAND.");
    return std::nullopt;
  }
  return reader.keep(read_rehearsal(script, library, places, &*subject.applied));
}

std::optional<Subject> read_subject(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  Subject subject;
  const runs::RehearsalPlaces places = runs::rehearsal_places_of_process();
  subject.tolerance = reader.share(Option::Tolerance);
  std::optional<runs::RehearsalSettings> settings;
  subject.batch = line.value(Option::FindBatch);
  if (subject.batch) {
    reader.keep(runs::batch_words(*subject.batch, 1));
    if (line.script.empty()) reader.fail(Option::FindBatch, "A plan fixes its own batch.", "Name a script, after --.");
    for (const Option one_run : {Option::Snapshot, Option::AllocatorTrace, Option::CompareWith}) {
      if (line.has(one_run)) reader.fail(one_run, "It applies to one rehearsal, and --find-batch runs many.", "");
    }
  }
  if (!line.script.empty()) {
    settings = read_script(line, library, places, subject, reader);
  } else {
    if (line.has(Option::Apply))
      reader.fail(Option::Apply, "The plan itself is rehearsed already.", "Name a script, after --.");
    subject.plan = reader.keep(read_given(line, line.arguments.front(), library));
    if (line.has(Option::CompareWith))
      reader.fail(Option::CompareWith, "A plan is compared with its own prediction.", "");
    if (subject.plan && subject.plan->spec.captured) {
      settings = read_captured_script(line, library, places, subject, reader);
    } else if (subject.plan) {
      settings = reader.keep(read_plan_rehearsal(line, *subject.plan, places));
    }
    subject.against = Against{.report = std::nullopt, .plan = subject.plan ? subject.plan : subject.applied};
  }
  if (!settings) return std::nullopt;
  if (const runs::Given* given = subject.given(); given != nullptr && given->file.plan.mesh.ep > 1) {
    errors.push_back({given->path, "transformers divides the experts of this plan when it loads the model.",
                      "Rehearse a script that does so, and compare: rehearse --compare-with PLAN -- COMMAND."});
    return std::nullopt;
  }
  subject.settings = *std::move(settings);
  return subject;
}

void set_plan(StepReport& report, const runs::Given& given) {
  report.model = given.file.plan.model;
  report.plan = given.file.plan;
}

std::string json_of_rehearsal(const StepReport& report, const Cluster* cluster, const Comparison* comparison,
                              const runs::BatchSearch* batches) {
  ReportAdditions additions;
  if (comparison != nullptr) additions.comparison = *comparison;
  if (batches != nullptr) runs::add_batches(additions, *batches);
  return to_json(report, additions, cluster);
}

/// 0, or the system's error number: std::filesystem reports a full disk as "Input/output error".
int copy_contents(const std::string& from, const std::string& to) {
  std::ifstream source(from, std::ios::binary);
  std::ofstream target(to, std::ios::binary | std::ios::trunc);
  errno = 0;
  std::vector<char> room(1 << 16);
  while (source && target) {
    source.read(room.data(), static_cast<std::streamsize>(room.size()));
    target.write(room.data(), source.gcount());
  }
  target.close();
  if (source.eof() && target) return 0;
  return errno != 0 ? errno : EIO;
}

/// Copies the files of the reported process to the requested paths.
Result<void> keep_files(const runs::RehearsalSettings& settings, const StepReport& report,
                        const std::vector<runs::RankRun>& runs) {
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const runs::RankRun& each) {
    return each.job.rank == report.rehearsal->rank && each.record->memory.peaks.device == report.memory.peaks.device;
  });
  if (run == runs.end()) return {};
  for (const auto& [from, to] :
       {std::pair{run->files.snapshot, settings.snapshot}, {run->files.trace, settings.trace}}) {
    if (to.empty()) continue;
    // Overwrites an existing file only with --force, and preserves its type: a pipe, a device.
    const bool is_new = !std::filesystem::exists(to);
    const int error = copy_contents(from, to);
    std::error_code ignored;
    if (error != 0 && is_new) std::filesystem::remove(to, ignored);
    if (error != 0) return failure(to, fmt::format("It cannot be written: {}.", std::strerror(error)), "");
  }
  return {};
}

/// All results of a rehearsal, with its comparison.
struct Answer {
  const Subject& subject;
  const StepReport& report;
  const render::RunFacts& facts;
  const Comparison* comparison = nullptr;
  const runs::BatchSearch* batches = nullptr;

  text::Document document(render::View view) const {
    std::error_code ignored;
    text::Document result;
    if (batches != nullptr) runs::add_batches(result, *batches);
    for (auto& part : render::document_of(
             report, facts,
             {.view = view, .comparison = comparison, .folder = std::filesystem::current_path(ignored).string()})) {
      result.push_back(std::move(part));
    }
    return result;
  }

  text::Document short_document() const {
    text::Document result;
    if (batches != nullptr) runs::add_batches(result, *batches);
    for (text::Entry& entry : render::rehearsal_verdicts(report, comparison)) result.push_back(std::move(entry));
    result.push_back(render::rehearsal_summary(report));
    return result;
  }

  std::string json() const {
    return json_of_rehearsal(report, subject.given() ? &subject.given()->cluster : nullptr, comparison, batches);
  }
};

tl::expected<void, Failure> write_page(const CommandLine& line, const Output& output, const Answer& all) {
  const std::optional<std::string> path = line.value(Option::Html);
  if (!path) return {};
  render::View view = output.view();
  view.pictures = false;
  const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const auto written =
      write_file_atomically(*path, render::page_of(all.report, printable(all.document(view))), overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), *path, overwrite));
  return {};
}

CommandResult answer(const CommandLine& line, const Output& output, const Answer& all) {
  const bool is_outside = all.comparison != nullptr && !all.comparison->beyond.empty();
  ExitCode code = all.report.verdict == Verdict::DoesNotFit || is_outside ? kExitNo : kExitYes;
  // The other ranks' fit does not prove anything about a rank that could not run.
  if (code == kExitYes && !all.report.rehearsal->unplayed.empty()) code = kExitRun;
  const auto written = write_output_file(line, all.json());
  const auto page = write_page(line, output, all);
  if (prints_json(line, output)) {
    output.console.out << all.json();
  } else {
    output.print(output.quiet ? all.short_document() : all.document(output.view()));
  }
  // A full disk loses the files, but not the answer.
  if (!written) return tl::unexpected(written.error());
  if (!page) return tl::unexpected(page.error());
  return code;
}

/// The rehearsals of batches, and the report of the largest that fits so far, or of the first.
class BatchTries {
 public:
  BatchTries(const Subject& subject, const Output& output, const std::string& folder, runs::Supervision& supervision)
      : subject_(subject), output_(output), folder_(folder), supervision_(supervision) {}

  std::optional<runs::BatchTrial> operator()(std::int64_t batch) {
    runs::RehearsalSettings settings = subject_.settings;
    settings.command = runs::with_batch(std::move(settings.command), *subject_.batch, batch);
    const std::string folder = fmt::format("{}/batch-{}", folder_, batch);
    std::error_code ignored;
    std::filesystem::create_directory(folder, ignored);
    const auto runs = rehearse_all(settings, output_, folder, supervision_);
    std::filesystem::remove_all(folder, ignored);
    if (runs && !*runs) {
      interrupted = true;
      return std::nullopt;
    }
    if (!runs && !report) {
      failure = runs.error();
      return std::nullopt;
    }
    runs::BatchTrial trial{.batch = batch, .why = runs ? "" : to_string(runs.error().errors.front())};
    if (runs) look(settings, **runs, trial);
    output_.note(fmt::format("batch {}: {}", batch, text_of(trial)));
    return trial;
  }

  std::optional<StepReport> report;
  render::RunFacts facts;
  bool interrupted = false;
  std::optional<Failure> failure;  // Failure of the first batch, which ends the search.

 private:
  void look(const runs::RehearsalSettings& settings, const RehearsalRuns& runs, runs::BatchTrial& trial) {
    StepReport made = runs::measured_report(settings, runs.runs);
    made.rehearsal->unplayed = runs.unplayed;
    trial.device_peak = made.memory.peaks.device;
    trial.fits = made.verdict == Verdict::Fits && runs.unplayed.empty();
    if (made.verdict == Verdict::Fits && !runs.unplayed.empty()) {
      const UnplayedRank& first = runs.unplayed.front();
      trial.why = fmt::format("Rank {}: {}", first.rank, first.why);
    }
    if (report && (!trial.fits || trial.batch < largest_)) return;
    if (trial.fits) largest_ = trial.batch;
    report = std::move(made);
    facts = runs.facts;
  }

  static std::string text_of(const runs::BatchTrial& trial) {
    if (!trial.why.empty()) return trial.why;
    const std::string peak = format_bytes(trial.device_peak);
    return trial.fits ? fmt::format("fits, device peak {}.", peak) : fmt::format("out of memory, at {} so far.", peak);
  }

  const Subject& subject_;
  const Output& output_;
  const std::string& folder_;
  runs::Supervision& supervision_;
  std::int64_t largest_ = 0;
};

CommandResult find_batch(const CommandLine& line, const Output& output, const Subject& subject,
                         const std::string& folder, runs::Supervision& supervision) {
  BatchTries tries(subject, output, folder, supervision);
  const runs::BatchSearch search = runs::find_largest_batch(std::ref(tries), kMostBatch);
  if (tries.interrupted) return interrupted(output);
  if (tries.failure) return tl::unexpected(*tries.failure);
  return answer(line, output, {.subject = subject, .report = *tries.report, .facts = tries.facts, .batches = &search});
}

CommandResult rehearse_in(const std::string& folder, Subject subject, const CommandLine& line, const Output& output,
                          runs::Supervision& supervision) {
  if (subject.plan) {
    const std::string job = folder + "/job.json";
    const auto written =
        write_file_atomically(job, runs::job_text(*subject.plan, subject.settings.steps), Overwrite::Refuse);
    if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
    subject.settings.command.push_back(job);
  }
  if (subject.applied) {
    const auto written = runs::write_applied(subject.settings, *subject.applied, folder);
    if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  }
  if (subject.batch) return find_batch(line, output, subject, folder, supervision);
  const auto runs = rehearse_all(subject.settings, output, folder, supervision);
  if (!runs) return tl::unexpected(runs.error());
  if (!*runs) return interrupted(output);

  StepReport report = runs::measured_report(subject.settings, (*runs)->runs);
  report.rehearsal->unplayed = (*runs)->unplayed;
  if (const runs::Given* given = subject.given()) set_plan(report, *given);
  std::optional<Comparison> comparison;
  if (subject.against) {
    const Result<StepReport> predicted = subject.against->predicted(report.rehearsal->rank);
    if (!predicted) return input_failure(predicted.error());
    comparison = compare(*predicted, report);
    comparison->beyond = subject.beyond(*comparison);
  }
  const Result<void> kept = keep_files(subject.settings, report, (*runs)->runs);
  const CommandResult answered = answer(line, output,
                                        {.subject = subject,
                                         .report = report,
                                         .facts = (*runs)->facts,
                                         .comparison = comparison ? &*comparison : nullptr});
  if (!kept) return tl::unexpected(Failure{kept.error(), kExitRun});
  return answered;
}

}  // namespace

CommandResult rehearse_command(const CommandLine& line, const Output& output) {
  Errors errors =
      check_outputs(line, {Option::Output, Option::Snapshot, Option::AllocatorTrace, Option::Html, Option::Progress});
  std::optional<Subject> subject = read_subject(line, output.console.library, errors);
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  begin_progress(subject->settings);

  return in_rehearsal_folder([&](const std::string& folder, runs::Supervision& supervision) {
    return rehearse_in(folder, *std::move(subject), line, output, supervision);
  });
}

}  // namespace fsdp::command
