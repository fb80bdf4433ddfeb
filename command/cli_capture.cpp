// capture: makes a model file from a training script, and checks that it describes the script.
//
// The script runs as in a rehearsal, once for each requested batch; the hook in the process records its steps and
// writes the model (python/fsdp_capture). Then the result is compared with the script: a plan of it that shards the
// model over two GPUs is applied to the script by the real fully_shard, and the rehearsal is compared with the
// capture's prediction. A wrong capture is not written.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_rehearse_settings.h"
#include "command/cli_values.h"
#include "command/rehearse_session.h"
#include "core/base/files.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "core/report/compare.h"
#include "core/spec/captured_model.h"
#include "planner/advice/explained_search.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "render/render_capture.h"
#include "runs/find_batch.h"
#include "runs/plan_check.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_report.h"

namespace fsdp::command {

namespace {

struct Capture {
  runs::RehearsalSettings settings;
  std::string target;
  std::optional<std::string> batch_words;  ///< "--batch-size {}".
  std::vector<std::int64_t> batches;       ///< Empty for that of the command.
  bool is_checked = true;
};

std::vector<std::int64_t> read_batches(const CommandLine& line, OptionReader& reader) {
  std::vector<std::int64_t> batches;
  const std::optional<std::string> text = line.value(Option::Batches);
  if (!text) return batches;
  for (const std::string_view word : split(*text, ',')) {
    const std::optional<std::int64_t> number = parse_integer(word);
    if (!number || *number < 1) {
      reader.fail(Option::Batches, fmt::format("\"{}\" is not a batch.", word), "Write numbers with commas: 1,2,4,8.");
    } else if (std::find(batches.begin(), batches.end(), *number) == batches.end()) {
      batches.push_back(*number);
    }
  }
  return batches;
}

std::optional<Capture> read_capture(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  Capture capture;
  capture.target = line.value(Option::Output).value_or("");
  if (capture.target.empty() || capture.target == "-") {
    reader.fail(Option::Output, "A capture is a file.", "Write -o my.model.json.");
  }
  capture.is_checked = !line.has(Option::NoCheck);
  capture.batches = read_batches(line, reader);
  capture.batch_words = line.value(Option::BatchOption);
  if (capture.batch_words) reader.keep(runs::batch_words(*capture.batch_words, 1, flag_of(Option::BatchOption)));
  if (capture.batch_words && !line.has(Option::Batches)) {
    reader.fail(Option::BatchOption, "There are no batches for it.", "Add --batches 1,2,4,8.");
  } else if (!capture.batch_words && line.has(Option::Batches)) {
    reader.fail(Option::Batches, "It is not known which option sets the script's batch.",
                "Add --batch-option '--batch-size {}', with the script's own option.");
  }
  if (line.script.empty()) {
    errors.push_back({"", "There is no command to capture.",
                      "Write it after --: fsdp-plan capture -o my.model.json -- python train.py."});
  }
  auto settings = reader.keep(read_rehearsal(line, library, runs::rehearsal_places_of_process()));
  if (!settings || !errors.empty()) return std::nullopt;
  capture.settings = *std::move(settings);
  capture.settings.steps = 0;  // The process ends when everything is recorded.
  return capture;
}

/// The words that start the script with a batch.
std::vector<std::string> command_for(const Capture& capture, std::optional<std::int64_t> batch) {
  const std::vector<std::string>& command = capture.settings.command;
  return batch && capture.batch_words ? runs::with_batch(command, *capture.batch_words, *batch) : command;
}

Failure run_failure(std::string place, std::string what, std::string hint) {
  return {{{std::move(place), std::move(what), std::move(hint)}}, kExitRun};
}

/// The sentence with which the recorder gave up; `nullopt` if it has written a model.
std::optional<std::string> refusal_in(const Result<JsonDocument>& document) {
  if (!document) return "The script trained no model that could be captured.";
  const JsonValue* error = document->root.find("error");
  if (error == nullptr) return std::nullopt;
  return error->type == JsonType::String ? error->text : "The capture failed.";
}

/// A plan sets the script's batch by the same option, so the option must mean what the plan means.
Errors check_batches(const Capture& capture, const ModelSpec& spec) {
  Errors errors;
  const std::vector<std::int64_t> seen = batches_of(*spec.captured);
  for (const std::int64_t batch : capture.batches) {
    if (std::binary_search(seen.begin(), seen.end(), batch)) continue;
    const auto words = runs::batch_words(*capture.batch_words, batch);
    errors.push_back({std::string(flag_of(Option::BatchOption)),
                      fmt::format("With {} the script trained micro-batches of other sizes: {}.",
                                  fmt::join(*words, " "), fmt::join(seen, ", ")),
                      "Give the option that sets how many samples one GPU takes at once."});
  }
  return errors;
}

/// The result of recording a script.
struct Recorded {
  Seconds seconds{0};
  runs::RecordedJob job;  ///< Its ranks, of which one ran.
};

/// Runs the script once for each batch; the recorder collects the sizes in one file. `nullopt` if the user ended it.
tl::expected<std::optional<Recorded>, Failure> record(const Capture& capture, const Output& output,
                                                      const std::string& folder, runs::Supervision& supervision) {
  std::vector<std::optional<std::int64_t>> batches(capture.batches.begin(), capture.batches.end());
  if (batches.empty()) batches.emplace_back();
  Recorded recorded;
  for (const std::optional<std::int64_t> batch : batches) {
    runs::RehearsalSettings settings = capture.settings;
    settings.command = command_for(capture, batch);
    settings.capture = folder + "/captured.json";
    settings.capture_command = capture.settings.command;
    settings.capture_batch_option = capture.batch_words.value_or("");
    const auto runs = rehearse_all(settings, output, folder, supervision);
    if (runs && !*runs) return std::nullopt;
    // A recorder that gives up ends the script, so that the script's exit status does not explain it.
    const Result<JsonDocument> written = read_json_file(settings.capture);
    if (!runs && !written) return tl::unexpected(runs.error());
    if (const auto why = refusal_in(written)) {
      return tl::unexpected(run_failure(batch ? fmt::format("batch {}", *batch) : "", *why, ""));
    }
    if (!runs) return tl::unexpected(runs.error());
    recorded.seconds += (*runs)->facts.seconds;
    recorded.job = (*runs)->runs.front().record->job;
  }
  return std::optional<Recorded>(recorded);
}

/// A plan of the capture that shards its model over two GPUs, with each block a unit. If a step has several
/// micro-batches, it uses the command's GPUs instead, because scripts divide a step's samples among their ranks.
/// `nullopt` if none fits.
Result<std::optional<runs::Given>> plan_to_check(const Capture& capture, const ModelSpec& spec,
                                                 const runs::RecordedJob& job, const std::string& library) {
  planner::PlanRequest request{.model = spec.file_name, .choices = {}};
  request.choices.gpus = runs::kCheckedGpus;
  request.choices.gpu_name = capture.settings.cluster.gpu.name;
  request.choices.strategy = "FULL_SHARD";
  // A script that makes its own process group seldom adds Gloo, which offloading needs, to NCCL.
  request.choices.cpu_offload = planner::OffloadChoice(false);
  // As many units as possible, so that every block is gathered and reduced by itself.
  if (!spec.captured->points.front().stacks.empty()) request.choices.wrap = planner::Wrap{};
  FSDP_TRY(planner::ResolvedRequest resolved, planner::resolve(request, library, &spec));
  if (resolved.space.base.accumulation > 1 && job.world_size > 1) {
    request.choices.gpus = static_cast<int>(std::min(job.local_world_size, job.world_size));
    request.choices.nodes = static_cast<int>(job.world_size / *request.choices.gpus);
    FSDP_TRY(resolved, planner::resolve(request, library, &spec));
  }
  resolved.space.explain = false;
  FSDP_TRY(const planner::SearchResult found,
           planner::search(resolved.spec, resolved.workload, resolved.cluster, resolved.space, {}));
  if (found.verdict == Verdict::DoesNotFit) return std::nullopt;
  runs::Given given{.path = "plan.json", .file = {.plan = found.report.plan, .cluster = resolved.cluster}};
  given.workload = workload_of(given.file.plan);
  FSDP_TRY(given.model, build_model(spec, given.workload));
  given.spec = spec;
  given.cluster = std::move(resolved.cluster);
  return std::optional<runs::Given>(std::move(given));
}

/// `nullopt` if the user ended it.
tl::expected<std::optional<runs::PlanCheck>, Failure> check(const Capture& capture, const CommandLine& line,
                                                            const ModelSpec& spec, const runs::RecordedJob& job,
                                                            const Output& output, const std::string& folder,
                                                            runs::Supervision& supervision) {
  const std::string& library = output.console.library;
  const auto without = [](std::string why) { return runs::PlanCheck{.terms = {}, .not_made = std::move(why)}; };
  const auto plan = plan_to_check(capture, spec, job, library);
  if (!plan) return tl::unexpected(Failure{plan.error(), kExitRun});
  if (!*plan) return without("no plan fits two of these GPUs");
  const runs::Given& given = **plan;
  CommandLine of_plan = line;  // The machines are the plan's.
  of_plan.script = command_for(capture, batch_of(given.model));
  auto settings = read_rehearsal(of_plan, library, runs::rehearsal_places_of_process(), &given);
  if (!settings) return tl::unexpected(Failure{settings.error(), kExitRun});
  const Result<void> written = runs::write_applied(*settings, given, folder);
  if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  const auto runs = rehearse_all(*settings, output, folder, supervision);
  if (!runs) {
    const Errors& errors = runs.error().errors;
    runs::PlanCheck failed = without(errors.empty() ? "the script failed under a plan" : errors.front().what);
    failed.has_failed = true;
    return failed;
  }
  if (!*runs) return std::nullopt;
  const StepReport measured = runs::measured_report(*settings, (*runs)->runs);
  const Result<StepReport> predicted =
      simulator::Predictor(given.model, given.cluster).report(given.file.plan, measured.rehearsal->rank);
  if (!predicted) return tl::unexpected(Failure{predicted.error(), kExitRun});
  return runs::checked(compare(*predicted, measured), given.cluster, std::nullopt, runs::own_collectives(given));
}

CommandResult capture_in(const std::string& folder, const Capture& capture, const CommandLine& line,
                         const Output& output, runs::Supervision& supervision) {
  const auto recorded = record(capture, output, folder, supervision);
  if (!recorded) return tl::unexpected(recorded.error());
  if (!*recorded) return interrupted(output);
  const std::string model = folder + "/captured.json";
  const Result<ModelSpec> spec = read_model_spec(model);
  if (!spec) return tl::unexpected(Failure{spec.error(), kExitRun});
  if (Errors other = check_batches(capture, *spec); !other.empty()) return input_failure(std::move(other));
  runs::PlanCheck checked;
  if (capture.is_checked) {
    auto made = check(capture, line, *spec, (*recorded)->job, output, folder, supervision);
    if (!made) return tl::unexpected(made.error());
    if (!*made) return interrupted(output);
    checked = **std::move(made);
  }
  const bool is_good = checked.holds();
  if (is_good) {
    const Result<std::string> text = read_text_file(model);
    if (!text) return tl::unexpected(Failure{text.error(), kExitRun});
    const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
    const auto written = write_file_atomically(capture.target, *text, overwrite);
    if (!written) return tl::unexpected(not_written(written.error(), capture.target, overwrite));
  }
  const text::Document document = render::document_of(*spec, checked, capture.target, (*recorded)->seconds);
  output.print(output.quiet ? text::Document{document.front()} : document);
  return is_good ? kExitYes : kExitNo;
}

}  // namespace

CommandResult capture_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output, Option::Progress});
  const std::optional<Capture> capture = read_capture(line, output.console.library, errors);
  if (output.format == text::Format::Json) {
    errors.push_back({"--format", "A capture answers with the file that it writes.", "Write table, md or csv."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  begin_progress(capture->settings);

  return in_rehearsal_folder([&](const std::string& folder, runs::Supervision& supervision) {
    return capture_in(folder, *capture, line, output, supervision);
  });
}

}  // namespace fsdp::command
