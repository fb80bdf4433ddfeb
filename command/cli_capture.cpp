// capture: from a training script to a model file, and whether that file says what the script does.
//
// The script runs as in a rehearsal, once for each batch that is asked for; the hook in the process records its steps
// and writes the model (python/fsdp_capture). The result is then held against the script: a plan is made of it that
// shards the model over two GPUs, put into the script by the real fully_shard, and what is rehearsed is compared with
// what the capture predicts. A capture that is wrong is not written.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_rehearse_settings.h"
#include "command/cli_values.h"
#include "command/rehearse_session.h"
#include "core/base/files.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "core/plan/plan_file.h"
#include "core/report/compare.h"
#include "core/spec/captured_model.h"
#include "planner/search.h"
#include "runs/find_batch.h"
#include "runs/keeper.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_report.h"
#include "text/figures.h"
#include "text/progress_line.h"

namespace fsdp::planner {

namespace {

/// What a capture may be off by, in bytes requested and allocated in a steady step, and in what collectives move.
constexpr double kTolerance = 0.005;
constexpr int kCheckedGpus = 2;

/// What is to be captured.
struct Capture {
  RehearsalSettings settings;
  std::string target;
  std::optional<std::string> batch_words;  ///< "--batch-size {}".
  std::vector<std::int64_t> batches;       ///< Empty: that of the command.
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
  if (capture.batch_words) reader.keep(batch_words(*capture.batch_words, 1, flag_of(Option::BatchOption)));
  if (capture.batch_words && !line.has(Option::Batches)) {
    reader.fail(Option::BatchOption, "There are no batches for it.", "Add --batches 1,2,4,8.");
  } else if (!capture.batch_words && line.has(Option::Batches)) {
    reader.fail(Option::Batches, "It is not known how the script is told its batch.",
                "Add --batch-option '--batch-size {}', with the script's own option.");
  }
  if (line.script.empty()) {
    errors.push_back({"", "There is no command to capture.",
                      "Write it after --: fsdp-plan capture -o my.model.json -- python train.py."});
  }
  auto settings = reader.keep(read_rehearsal(line, library, rehearsal_places_of_process()));
  if (!settings || !errors.empty()) return std::nullopt;
  capture.settings = *std::move(settings);
  capture.settings.steps = 0;  // The process ends when it has all that it records.
  return capture;
}

/// The words that a script was started with for a batch.
std::vector<std::string> command_for(const Capture& capture, std::optional<std::int64_t> batch) {
  std::vector<std::string> command = capture.settings.command;
  if (!batch || !capture.batch_words) return command;
  const auto words = batch_words(*capture.batch_words, *batch);
  command.insert(command.end(), words->begin(), words->end());
  return command;
}

Failure run_failure(std::string place, std::string what, std::string hint) {
  return {{{std::move(place), std::move(what), std::move(hint)}}, kExitRun};
}

/// The sentence with which the recorder gave up; nothing: it has written a model.
std::optional<std::string> refusal_in(const std::string& path) {
  const Result<JsonDocument> document = read_json_file(path);
  if (!document) return "The script trained no model that could be captured.";
  const JsonValue* error = document->root.find("error");
  if (error == nullptr) return std::nullopt;
  return error->type == JsonType::String ? error->text : "The capture failed.";
}

/// The samples of a micro-batch.
std::optional<std::int64_t> batch_of(const Model& model) {
  const Dimension* batch = find_dimension(model.dimensions, "batch");
  return batch == nullptr ? std::nullopt : std::optional(static_cast<std::int64_t>(batch->value));
}

/// A plan tells the script its batch by the same option, so the option must mean what the plan means.
Errors check_batches(const Capture& capture, const ModelSpec& spec) {
  Errors errors;
  std::set<std::int64_t> seen;
  for (const Model& point : spec.captured->points) seen.insert(batch_of(point).value_or(0));
  for (const std::int64_t batch : capture.batches) {
    if (seen.contains(batch)) continue;
    const auto words = batch_words(*capture.batch_words, batch);
    errors.push_back({std::string(flag_of(Option::BatchOption)),
                      fmt::format("With {} the script trained micro-batches of other sizes: {}.",
                                  fmt::join(*words, " "), fmt::join(seen, ", ")),
                      "Give the option that says how many samples one GPU takes at once."});
  }
  return errors;
}

/// Runs the script once for each batch; the recorder puts the sizes into one file. Nothing: somebody asked to end.
tl::expected<std::optional<Seconds>, Failure> record(const Capture& capture, const Output& output,
                                                     const std::string& folder, Supervision& supervision) {
  std::vector<std::optional<std::int64_t>> batches(capture.batches.begin(), capture.batches.end());
  if (batches.empty()) batches.emplace_back();
  Seconds seconds{0};
  for (const std::optional<std::int64_t> batch : batches) {
    RehearsalSettings settings = capture.settings;
    settings.command = command_for(capture, batch);
    settings.capture = folder + "/captured.json";
    settings.capture_command = capture.settings.command;
    settings.capture_batch_option = capture.batch_words.value_or("");
    const auto runs = rehearse_all(settings, output, folder, supervision);
    if (runs && !*runs) return std::nullopt;
    // A recorder that gives up ends the script, and how the script ended then says nothing of why.
    const bool is_written = read_json_file(settings.capture).has_value();
    if (!runs && !is_written) return tl::unexpected(runs.error());
    if (const auto why = refusal_in(settings.capture)) {
      return tl::unexpected(run_failure(batch ? fmt::format("batch {}", *batch) : "", *why, ""));
    }
    if (!runs) return tl::unexpected(runs.error());
    seconds += (*runs)->facts.seconds;
  }
  return std::optional<Seconds>(seconds);
}

/// A plan of the capture that shards its model over two GPUs, each block a unit, as a file. Nothing: it has none.
Result<std::optional<Given>> plan_to_check(const Capture& capture, const std::string& model, bool has_stacks,
                                           const std::string& folder, const std::string& library) {
  PlanRequest request{.model = model, .choices = {}};
  request.choices.gpus = kCheckedGpus;
  request.choices.gpu_name = capture.settings.cluster.gpu.name;
  request.choices.strategy = "FULL_SHARD";
  // As many units as there can be, so that every block is gathered and reduced by itself.
  if (has_stacks) request.choices.wrap = Wrap{};
  FSDP_TRY(ResolvedRequest resolved, resolve(request, library));
  resolved.space.explain = false;
  FSDP_TRY(const SearchResult found, search(resolved.spec, resolved.workload, resolved.cluster, resolved.space, {}));
  if (found.verdict == Verdict::DoesNotFit) return std::nullopt;
  const std::string path = folder + "/plan.json";
  const std::string text = to_text(PlanFile{.plan = found.report.plan, .cluster = resolved.cluster});
  if (auto written = write_file_atomically(path, text, Overwrite::Allow); !written) {
    return tl::unexpected(std::move(written).error());
  }
  FSDP_TRY(Given given, read_planned(path, library));
  given.cluster = resolved.cluster;
  return std::optional<Given>(std::move(given));
}

/// What matters of a comparison: a steady step, which is what a capture records.
std::vector<ComparedTerm> checked_terms(const Comparison& comparison) {
  std::vector<ComparedTerm> terms;
  for (const ComparedTerm& term : comparison.terms) {
    if (term.name.starts_with("steady step:") || term.unit == TermUnit::Count || term.name.ends_with(" payload")) {
      terms.push_back(term);
    }
  }
  return terms;
}

/// Reserved bytes follow from the others by the allocator's choices, of which a few depend on what was before.
bool is_exact_term(const ComparedTerm& term) {
  return !term.name.ends_with("reserved peak") && !term.name.ends_with("device peak");
}

/// What a check said.
struct CaptureCheck {
  std::vector<ComparedTerm> terms;
  std::string not_made;  ///< Why there is none.
  bool is_interrupted = false;

  bool holds() const {
    return std::all_of(terms.begin(), terms.end(), [](const ComparedTerm& term) {
      return !is_exact_term(term) || std::abs(term.relative()) <= kTolerance;
    });
  }
};

tl::expected<CaptureCheck, Failure> check(const Capture& capture, const CommandLine& line, const Output& output,
                                          const std::string& folder, const std::string& model, bool has_stacks,
                                          Supervision& supervision) {
  const std::string& library = output.console.library;
  auto plan = plan_to_check(capture, model, has_stacks, folder, library);
  if (!plan) return tl::unexpected(Failure{plan.error(), kExitRun});
  if (!*plan) return CaptureCheck{.terms = {}, .not_made = "no plan fits two of these GPUs"};
  const Given& given = **plan;
  // The machines are the plan's, whatever was said of those that the script is captured on.
  CommandLine of_plan = line;
  for (const Option option : {Option::Gpus, Option::Nodes, Option::GpuName, Option::Memory, Option::ClusterFile}) {
    of_plan.values[static_cast<std::size_t>(option)].clear();
  }
  of_plan.script = command_for(capture, batch_of(given.model));
  auto settings = read_rehearsal(of_plan, library, rehearsal_places_of_process(), &given);
  if (!settings) return tl::unexpected(Failure{settings.error(), kExitRun});
  settings->apply = folder + "/applied.json";
  const auto written = write_file_atomically(settings->apply, applied_text(given), Overwrite::Allow);
  if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  const auto runs = rehearse_all(*settings, output, folder, supervision);
  if (!runs) {
    const Errors& errors = runs.error().errors;
    return CaptureCheck{.terms = {},
                        .not_made = errors.empty() ? "the script failed under a plan" : errors.front().what};
  }
  if (!*runs) return CaptureCheck{.terms = {}, .not_made = "", .is_interrupted = true};
  const StepReport measured = measured_report(*settings, (*runs)->runs);
  const Result<StepReport> predicted =
      simulator::Predictor(given.model, given.cluster).report(given.file.plan, measured.rehearsal->rank);
  if (!predicted) return tl::unexpected(Failure{predicted.error(), kExitRun});
  return CaptureCheck{.terms = checked_terms(compare(*predicted, measured)), .not_made = ""};
}

// ---- the answer ----------------------------------------------------------------------------------------------------

std::string difference_of(const ComparedTerm& term) {
  if (term.difference() == 0) return "";
  const double relative = term.relative();
  return std::isfinite(relative) ? fmt::format("{:+.3f} %", 100 * relative) : "not seen";
}

Table table_of(const CaptureCheck& checked) {
  Table table{.name = "check",
              .columns = {{"term", "term"},
                          {"predicted", "predicted", true},
                          {"rehearsed", "rehearsed", true},
                          {"difference", "difference", true}},
              .rows = {}};
  for (const ComparedTerm& term : checked.terms) {
    const auto figure = [&](std::int64_t value) {
      return term.unit == TermUnit::Bytes ? format_bytes(Bytes(value)) : fmt::format("{}", value);
    };
    table.rows.push_back({term.name, figure(term.predicted), figure(term.measured), difference_of(term)});
  }
  return table;
}

std::string sizes_of(const ModelSpec& spec) {
  std::string text;
  for (const Model& point : spec.captured->points) {
    std::string sizes;
    for (const Dimension& size : point.dimensions) {
      sizes += fmt::format("{}{} {:.0f}", sizes.empty() ? "" : ", ", size.name, size.value);
    }
    text += (text.empty() ? "" : "; ") + sizes;
  }
  return text;
}

Document document_of(const Capture& capture, const ModelSpec& spec, const CaptureCheck& checked, Seconds seconds) {
  const Model& model = spec.captured->points.front();
  Document result;
  const bool good = checked.holds();
  result.push_back(
      Entry{good ? "CAPTURED" : "NOT CAPTURED",
            {good ? capture.target
                  : fmt::format("{} was not written: what it predicts differs from the script itself by more "
                                "than {} %; --no-check writes it all the same.",
                                capture.target, 100 * kTolerance)},
            good ? Style::Good : Style::Bad});
  std::string stacks;
  for (const Stack& stack : model.stacks) {
    stacks +=
        fmt::format("{}{} x {} ({})", stacks.empty() ? "" : ", ", stack.calls.size(), stack.class_name, stack.name);
  }
  std::vector<std::string> precisions;
  for (const Block& block : model.blocks) {
    for (const RecordedTape& tape : block.recorded->tapes) {
      const std::string words = fmt::format("{}{}", name_of(tape.dtype), tape.checkpointed ? " checkpointed" : "");
      if (std::find(precisions.begin(), precisions.end(), words) == precisions.end()) precisions.push_back(words);
    }
  }
  Entry of_model{"model", {fmt::format("{}, {} parameters", spec.name, grouped(num_parameters(model)))}};
  if (!stacks.empty()) of_model.lines.push_back(stacks);
  result.push_back(std::move(of_model));
  result.push_back(Entry{"recorded", {fmt::format("{}", fmt::join(precisions, ", ")), sizes_of(spec)}});
  result.push_back(Entry{"took", {fmt::format("{:.1f} s", seconds.count())}});
  if (!checked.not_made.empty()) {
    result.push_back(
        Entry{"check", {fmt::format("It could not be held against the script: {}", checked.not_made)}, Style::Warning});
  } else if (!checked.terms.empty()) {
    result.push_back(Entry{"check",
                           {fmt::format("{} GPUs, FULL_SHARD: predicted beside the script itself, sharded by "
                                        "the real FSDP2 and rehearsed",
                                        kCheckedGpus)}});
    result.push_back(table_of(checked));
  }
  for (const std::string& note : spec.notes) result.push_back(Entry{"limit", {note}, Style::Warning});
  if (good)
    result.push_back(Entry{"see", {fmt::format("fsdp-plan {} --gpus 8 --mem 24G -o plan.json", capture.target)}});
  return result;
}

}  // namespace

Outcome capture_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  const std::optional<Capture> capture = read_capture(line, output.console.library, errors);
  if (output.format == Format::Json) {
    errors.push_back({"--format", "A capture answers with the file that it writes.", "Write table, md or csv."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);

  Supervision supervision;
  const Result<TemporaryFolder> folder = TemporaryFolder::make();
  if (!folder) return tl::unexpected(Failure{folder.error(), kExitRun});
  const Keeper keeper(folder->path());
  supervision.spare(keeper.pid());
  const auto interrupted = [&]() -> Outcome {
    output.note("Interrupted. Nothing is left running.");
    return kExitInterrupted;
  };
  const auto seconds = record(*capture, output, folder->path(), supervision);
  if (!seconds) return tl::unexpected(seconds.error());
  if (!*seconds) return interrupted();

  const std::string model = folder->path() + "/captured.json";
  const Result<ModelSpec> spec = read_model_spec(model);
  if (!spec) return tl::unexpected(Failure{spec.error(), kExitRun});
  if (Errors other = check_batches(*capture, *spec); !other.empty()) return input_failure(std::move(other));
  CaptureCheck checked;
  if (capture->is_checked) {
    const bool has_stacks = !spec->captured->points.front().stacks.empty();
    auto made = check(*capture, line, output, folder->path(), model, has_stacks, supervision);
    if (!made) return tl::unexpected(made.error());
    checked = *std::move(made);
    if (checked.is_interrupted) return interrupted();
  }
  if (checked.holds()) {
    const Result<std::string> text = read_text_file(model);
    if (!text) return tl::unexpected(Failure{text.error(), kExitRun});
    const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
    const auto written = write_file_atomically(capture->target, *text, overwrite);
    if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  }
  const Document document = document_of(*capture, *spec, checked, **seconds);
  output.print(output.quiet ? Document{document.front()} : document);
  return checked.holds() ? kExitYes : kExitNo;
}

}  // namespace fsdp::planner
