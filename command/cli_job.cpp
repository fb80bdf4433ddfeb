#include "command/cli_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "planner/jobs/job.h"
#include "render/choice_text.h"
#include "runs/launch_script.h"
#include "runs/titan_config.h"
#include "text/figures.h"
#include "text/shell_text.h"

namespace fsdp::command {

namespace {

bool takes_job(const CommandLine& line) {
  return line.command == Command::Plan || line.command == Command::Fit;
}

/// What was typed beside the configuration. Texts that cannot be read are errors later.
planner::TypedBesideJob typed_beside(const CommandLine& line) {
  planner::PlanChoices typed;
  for (const planner::PlanChoice choice : {planner::PlanChoice::Gpus, planner::PlanChoice::Nodes}) {
    if (line.has(choice))
      (void)render::read_choice(choice, line.values[static_cast<std::size_t>(Option(choice))], typed);
  }
  planner::TypedBesideJob result{.gpus = typed.gpus, .has_sequence = line.has(planner::PlanChoice::Sequence)};
  if (result.gpus) *result.gpus *= typed.nodes.value_or(1);
  return result;
}

/// A configuration, or a command that is read; nullopt if the line has neither.
Result<std::optional<planner::JobSource>> source_of(const CommandLine& line) {
  if (planner::is_job_line(line.script)) {
    const auto arguments = planner::own_titan_config(line.script);
    if (!arguments) return planner::find_job_line(line.script, planner::read_config_file);
    FSDP_TRY(const JsonDocument config,
             runs::read_titan_config(line.script.front(), *arguments, runs::rehearsal_places_of_process()));
    return planner::find_job_line(line.script, planner::read_config_file, config);
  }
  if (line.arguments.size() != 1) return std::nullopt;
  FSDP_TRY(std::optional<planner::JobSource> source,
           planner::find_job(line.arguments.front(), planner::read_config_file));
  return source;
}

/// As many as tell a launcher and its module.
std::vector<std::string> first_words(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 3;
  const auto module = std::find(words.begin(), words.end(), "-m");
  const std::size_t end = module == words.end() ? kMost : static_cast<std::size_t>(module - words.begin()) + 2;
  return {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(std::min(end, words.size()))};
}

/// A job, and what there is to say of its script.
struct FoundJob {
  planner::JobSource source;
  std::vector<std::string> notes = {};
};

/// The training that a shell script starts. Errors: those of runs::commands_of_script; it starts none that is read.
Result<FoundJob> job_of_script(const std::string& path, std::span<const std::string> arguments) {
  FSDP_TRY(const auto commands, runs::commands_of_script(path, arguments));
  std::vector<std::vector<std::string>> read;
  for (const std::vector<std::string>& words : commands) {
    if (planner::is_job_line(words)) read.push_back(words);
  }
  if (read.empty()) {
    const std::string started = commands.empty()
                                    ? std::string("It starts no training")
                                    : fmt::format("It starts \"{}\"", text::command_text(first_words(commands.back())));
    return failure(
        path, fmt::format("{}, which is not read without running it.", started),
        fmt::format("Its arguments: fsdp-plan -- bash {0} ARGUMENTS. fsdp-plan rehearse -- bash {0} runs it on "
                    "the stub GPU.",
                    path));
  }
  FSDP_TRY(planner::JobSource source, planner::find_job_line(read.front(), planner::read_config_file));
  FoundJob found{.source = std::move(source)};
  found.notes.push_back(
      fmt::format("bash has read {} and started nothing: {} ...", path, text::command_text(first_words(read.front()))));
  if (read.size() > 1) {
    found.notes.push_back(fmt::format("It starts {}, of which the first is planned.",
                                      text::counted(static_cast<std::int64_t>(read.size()), "training")));
  }
  return found;
}

/// nullopt if the line has neither a configuration nor a command that is read.
Result<std::optional<FoundJob>> job_of(const CommandLine& line) {
  if (!takes_job(line)) return std::nullopt;
  std::span<const std::string> script;
  if (line.arguments.size() == 1 && runs::is_shell_script(line.arguments.front())) script = line.arguments;
  if (line.arguments.empty() && runs::is_script_line(line.script)) script = std::span(line.script).subspan(1);
  if (!script.empty()) {
    FSDP_TRY(FoundJob found, job_of_script(script.front(), script.subspan(1)));
    return found;
  }
  FSDP_TRY(std::optional<planner::JobSource> source, source_of(line));
  if (!source) return std::nullopt;
  return FoundJob{.source = *std::move(source)};
}

/// Errors of a text that came from a file have its place.
Errors placed(Errors errors, const planner::JobWord& word) {
  for (Error& error : errors) error.where = word.where;
  return errors;
}

/// True if the user chose it, or the machines in another way.
bool is_given(const CommandLine& line, planner::PlanChoice choice) {
  const bool names_gpus = line.has(Option::Gpus) || line.has(Option::ClusterFile);
  const bool counts_gpus = choice == planner::PlanChoice::Gpus || choice == planner::PlanChoice::Nodes;
  return line.has(choice) || (counts_gpus && names_gpus);
}

}  // namespace

Result<LineOfJob> line_of_job(const CommandLine& line, const planner::Job& job) {
  LineOfJob result{line, {}};
  result.line.script.clear();
  result.line.arguments = {job.model};
  std::string meaning = fmt::format("{}: fsdp-plan {}", job.program, job.model);
  Errors errors;
  planner::PlanChoices read;
  for (const planner::JobWord& word : job.words) {
    const std::string_view flag = planner::place_of(word.choice);
    if (const Result<void> is_read = render::read_choice(word.choice, std::vector{word.text}, read); !is_read) {
      append(errors, placed(is_read.error(), word));
    } else if (is_given(line, word.choice)) {
      result.notes.push_back(fmt::format("{} counts before {} of {}.", flag, word.text, word.where));
    } else {
      result.line.values[static_cast<std::size_t>(Option(word.choice))] = {word.text};
      meaning += " " + text::command_text({std::string(flag), word.text});
    }
  }
  if (!job.trainer.empty() && !line.has(Option::For) && line.command == Command::Plan) {
    result.line.values[static_cast<std::size_t>(Option::For)] = {std::string(job.trainer)};
    meaning += fmt::format(" --for {}", job.trainer);
    if (!job.trainer_version.empty()) {
      result.line.values[static_cast<std::size_t>(Option::TrainerVersion)] = {std::string(job.trainer_version)};
      meaning += fmt::format(" --trainer-version {}", job.trainer_version);
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  result.notes.insert(result.notes.begin(), std::move(meaning));
  result.notes.insert(result.notes.end(), job.notes.begin(), job.notes.end());
  return result;
}

Result<LineOfJob> with_job(const CommandLine& line) {
  FSDP_TRY(std::optional<FoundJob> found, job_of(line));
  if (!found) return LineOfJob{line, {}};
  planner::JobSource& source = found->source;
  source.launch.typed = typed_beside(line);
  FSDP_TRY(const planner::Job job, source.program->read(source.launch));
  FSDP_TRY(LineOfJob result, line_of_job(line, job));
  result.notes.insert(result.notes.begin(), found->notes.begin(), found->notes.end());
  result.line.job = std::make_shared<const JobOfLine>(JobOfLine{std::move(source), line, job.engine});
  return result;
}

}  // namespace fsdp::command
