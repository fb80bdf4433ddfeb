// Exceptions are distinguished by the names of their classes and causes. Only if those do not decide, by their
// messages: names are part of an interface, sentences are not.

#include "runs/rehearse_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/parse_units.h"

namespace fsdp::runs {

namespace {

constexpr int kExitPlanRefused = 2;  // Exit code of fsdp_plan_runner.

constexpr std::string_view kPlanNotApplied = "fsdp_rehearsal.apply_plan.PlanNotApplied";

constexpr std::size_t kTailLines = 25;
constexpr std::int64_t kLinesAfterRead = 10;  // A value is checked soon after it is read.
constexpr std::string_view kReadsPath = "Does the command start a Python that reads PYTHONPATH (not python -I or -E)?";

/// Classes of failures without a network; the last part of the name counts.
constexpr std::array<std::string_view, 12> kOfNetwork = {"gaierror",
                                                         "ConnectionError",
                                                         "ConnectionRefusedError",
                                                         "ConnectTimeout",
                                                         "ConnectError",
                                                         "URLError",
                                                         "MaxRetryError",
                                                         "NameResolutionError",
                                                         "LocalEntryNotFoundError",
                                                         "OfflineModeIsEnabled",
                                                         "NewConnectionError",
                                                         "ProxyError"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// "requests.exceptions.ConnectionError" ends in ConnectionError.
std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool needs_network(const RehearsalRecord& record) {
  return std::any_of(record.error_types.begin(), record.error_types.end(), [](const std::string& type) {
    return std::find(kOfNetwork.begin(), kOfNetwork.end(), last_part(type)) != kOfNetwork.end();
  });
}

bool is_import_of(const ScriptError& error, std::string_view module) {
  return last_part(error.type) == "ModuleNotFoundError" && contains(error.message, fmt::format("'{}'", module));
}

/// "cannot import name 'x' from 'torch.y'", "module 'torch.y' has no attribute 'x'", "x requires torch>=2.12".
bool wants_other_torch(const ScriptError& error) {
  const std::string_view type = last_part(error.type);
  const std::string_view text = error.message;
  const bool is_of_torch = contains(text, "'torch'") || contains(text, "'torch.");
  if (type == "ModuleNotFoundError") return contains(text, "'torch.");
  if (type == "ImportError" || type == "AttributeError") {
    if (is_of_torch) return true;
  }
  for (const std::string_view phrase :
       {"requires torch", "requires PyTorch", "torch>=", "torch >=", "torch==", "PyTorch >=", "PyTorch>="}) {
    if (contains(text, phrase)) return true;
  }
  return false;
}

bool is_without_cuda(const RehearsalRecord& record) {
  if (record.torch_imported && record.seen.cuda.empty()) return true;
  return record.seen.error && contains(record.seen.error->message, "Torch not compiled with CUDA enabled");
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

/// The place in the script: the last line of a traceback that is neither in an installed package nor in our own.
std::optional<PythonFrame> place_of(const ScriptError& error) {
  std::optional<PythonFrame> place;
  std::string_view rest = error.traceback;
  for (std::size_t at = rest.find("  File \""); at != std::string_view::npos; at = rest.find("  File \"")) {
    rest.remove_prefix(at + 8);
    const std::string_view file = rest.substr(0, rest.find('"'));
    const std::size_t number = rest.find(", line ");
    if (file.empty() || number == std::string_view::npos) break;
    const std::string_view after = rest.substr(number + 7);
    const std::string_view line = after.substr(0, after.find_first_not_of("0123456789"));
    const bool is_hidden = contains(file, "/site-packages/") || contains(file, "/lib/python") ||
                           contains(file, "/fsdp_rehearsal/") || file.starts_with("<");
    PythonFrame frame{.file = std::string(file)};
    const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), frame.line);
    if (!is_hidden && failed == std::errc{}) place = std::move(frame);
  }
  return place;
}

/// "ModuleNotFoundError: No module named 'pandas'": the last line of the traceback that a DataLoader puts into the
/// message of an error of its workers; empty for other messages.
std::string said_in_worker(const ScriptError& error) {
  std::string_view text = error.message;
  if (!text.starts_with("Caught ") || !contains(text, "Original Traceback")) return "";
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

/// "ValueError: shapes differ (train.py:7).", always one sentence.
std::string said_by(const ScriptError& error) {
  const std::string in_worker = said_in_worker(error);
  std::string text = in_worker.empty() ? fmt::format("{}: {}", error.type, first_line(error.message))
                                       : in_worker + ", in a worker of a DataLoader";
  while (text.ends_with('.') || text.ends_with(' ') || text.ends_with(':')) text.pop_back();
  const std::optional<PythonFrame> place = place_of(error);
  return place ? fmt::format("{} ({}:{}).", text, place->file, place->line) : text + ".";
}

/// The line that last read from the device before a failure, if it is close to the failure.
std::string read_before(const RehearsalRecord& record) {
  const std::optional<PythonFrame> place = place_of(*record.seen.error);
  const Readback* nearest = nullptr;
  for (const Readback& each : record.seen.limits.readbacks) {
    if (!place || each.file != place->file || each.line > place->line) continue;
    if (place->line - each.line <= kLinesAfterRead && (nearest == nullptr || each.line > nearest->line)) {
      nearest = &each;
    }
  }
  return nearest == nullptr ? "" : fmt::format("{}:{}", nearest->file, nearest->line);
}

Error explain_exception(const RehearsalRecord& record, const std::string& where) {
  const ScriptError& error = *record.seen.error;
  const std::string said = said_by(error);
  if (is_import_of(error, "torch")) {
    return {where, "This Python has no torch.",
            "Run ./scripts/bootstrap --with rehearsal, or name a Python that has it: -- /path/to/python train.py."};
  }
  if (is_without_cuda(record)) {
    return {where,
            fmt::format("Its torch {} was built without CUDA, so it cannot use a GPU: {}", record.seen.torch, said),
            "Install the wheel of torch for CUDA, which is the one that pip takes on Linux."};
  }
  if (needs_network(record)) {
    return {where, fmt::format("The script needs the network: {}", said),
            "Fetch models and data before, or point the script at local copies."};
  }
  if (wants_other_torch(error)) {
    return {where,
            fmt::format("The script, or a package of it, wants another torch than {}: {}", record.seen.torch, said),
            "Rehearse it with the Python of its environment."};
  }
  if (!record.seen.limits.missing_functions.empty()) {
    return {where,
            fmt::format("The stub GPU has no {}, and then: {}", fmt::join(record.seen.limits.missing_functions, ", "),
                        said),
            "Code that calls it cannot be rehearsed; the script works if it can do without."};
  }
  if (last_part(error.type) == "ModuleNotFoundError" || said_in_worker(error).starts_with("ModuleNotFoundError")) {
    return {where, fmt::format("This Python lacks a module of the script: {}", said),
            "Rehearse it with the Python of its environment."};
  }
  if (last_part(error.type) == "EndlessLoop") {
    const std::optional<PythonFrame> place = place_of(error);
    return {place ? fmt::format("{}, {}:{}", where, place->file, place->line) : where, first_line(error.message) + ".",
            "Bound the loop by a number of rounds, or leave it out of the rehearsal."};
  }
  if (const std::string line = read_before(record); !line.empty()) {
    return {where, fmt::format("The script raised {}", said),
            fmt::format("A rehearsal computes no values: {} read 0 from the device. Leave out the check.", line)};
  }
  return {where, fmt::format("The script raised {}", said), ""};
}

bool is_refused_by_script(const RankRun& run) {
  return run.record && run.record->seen.error && run.record->seen.error->type == kPlanNotApplied;
}

/// The last output, as of SystemExit("there is no data"): ": there is no data."; otherwise only the sentence's end.
std::string last_words(const RankRun& run) {
  std::string_view text = run.log_tail;
  while (text.ends_with('\n')) text.remove_suffix(1);
  text.remove_prefix(text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1);
  while (text.ends_with('.')) text.remove_suffix(1);
  constexpr std::size_t kMost = 200;
  return text.empty() || text.size() > kMost ? "." : fmt::format(". Its last output: {}.", text);
}

Error explain_silence(const RankRun& run, const std::string& where) {
  const ExitStatus status = run.status.value_or(ExitStatus{});
  if (status.signal == SIGKILL) {
    return {where, "It was killed, probably because this machine ran out of memory.",
            "Build the model on the meta device, or rehearse fewer ranks at a time."};
  }
  if (status.signal != 0) return {where, fmt::format("It crashed: it {}.", describe(status)), ""};
  if (status.code != 0) {
    return {where, fmt::format("It {}, and no Python in it reported what it did.", describe(status)),
            std::string(kReadsPath)};
  }
  return {where, "It succeeded, but no Python in it reported what it did.", std::string(kReadsPath)};
}

}  // namespace

// A line for each reason: place, sentence and hint, with tabs between.
std::optional<Errors> why_not_applied(const RehearsalRecord& record) {
  if (!record.seen.error || record.seen.error->type != kPlanNotApplied) return std::nullopt;
  Errors errors;
  std::string_view rest = record.seen.error->message;
  const auto next = [&](char end) {
    const std::size_t at = std::min(rest.find(end), rest.size());
    std::string part(rest.substr(0, at));
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
  };
  while (!rest.empty()) {
    Error& reason = errors.emplace_back();
    reason.where = next('\t');
    reason.what = next('\t');
    reason.hint = next('\n');
  }
  return errors;
}

Errors explain_failure(const RankRun& run, const RehearsalSettings& settings) {
  const std::string where = fmt::format("rank {}", run.job.rank);
  if (!run.status) return run.errors;
  if (run.disk_full) {
    const std::string folder = run.files.record.substr(0, run.files.record.rfind("/fsdp-plan-"));
    return {{where,
             fmt::format("The folder of temporary files, {}, is full: it has the script's record and what it saves.",
                         folder),
             "Set TMPDIR to a folder with more room."}};
  }
  if (run.timed_out) {
    const std::string at = run.last_progress.empty() ? "" : fmt::format(" (it was at: {})", run.last_progress);
    return {{where,
             fmt::format("It did not end within {}{} and was killed. See above for where it was.",
                         format_time(settings.timeout), at),
             "Raise --timeout or lower --steps."}};
  }
  if (auto reasons = run.record ? why_not_applied(*run.record) : std::nullopt) return *std::move(reasons);
  if (is_refused_plan(run)) {
    return {{where, "The plan cannot be rehearsed, for the reasons above.",
             "Predicting it with simulate needs no PyTorch."}};
  }
  if (run.record) {
    if (run.record->seen.error) return {explain_exception(*run.record, where)};
    return {{where, fmt::format("The script ended itself with exit code {}{}", run.exit_code(), last_words(run)), ""}};
  }
  if (!run.errors.empty()) {
    Errors errors = {{where, "Its record of itself cannot be read.", ""}};
    append(errors, run.errors);
    return errors;
  }
  return {explain_silence(run, where)};
}

bool is_refused_plan(const RankRun& run) {
  if (is_refused_by_script(run)) return true;
  const bool runs_plan = run.record && std::any_of(run.record->job.argv.begin(), run.record->job.argv.end(),
                                                   [](const auto& word) { return word == "fsdp_plan_runner"; });
  return runs_plan && !run.record->seen.error && run.exit_code() == kExitPlanRefused;
}

std::string kept_output(const RankRun& run) {
  if (is_refused_by_script(run)) return "";  // The reasons are complete.
  if (run.record && run.record->seen.error && !run.record->seen.error->traceback.empty()) {
    return run.record->seen.error->traceback;
  }
  std::string_view text = run.log_tail;
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::size_t begin = text.size();
  for (std::size_t line = 0; line < kTailLines && begin != 0 && begin != std::string_view::npos; ++line) {
    begin = begin == 0 ? 0 : text.rfind('\n', begin - 1);
  }
  begin = begin == std::string_view::npos ? 0 : begin + (begin < text.size() && text[begin] == '\n' ? 1 : 0);
  return text.empty() ? "" : std::string(text.substr(begin)) + "\n";
}

bool used_the_gpu(const RankRun& run, Errors& errors) {
  const RehearsalRecord& record = *run.record;
  const std::string where = fmt::format("rank {}", run.job.rank);
  if (record.memory.peaks.allocated > Bytes(0) || record.end == "out_of_memory") return true;
  if (!record.torch_imported) {
    errors.push_back(
        {where, "The script imports no torch, so there is nothing to rehearse.", "Name the command that trains."});
  } else if (is_without_cuda(record)) {
    errors.push_back({where,
                      fmt::format("Its torch {} was built without CUDA, so it trained on the CPU.", record.seen.torch),
                      "Install the wheel of torch for CUDA, which is the one that pip takes on Linux."});
  } else {
    errors.push_back({where, "The script put nothing on the GPU.",
                      "Does it move its model to \"cuda\", or does an option of it say \"cpu\"?"});
  }
  return false;
}

}  // namespace fsdp::runs
