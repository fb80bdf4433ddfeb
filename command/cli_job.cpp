#include "command/cli_job.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "planner/jobs/job.h"
#include "render/choice_text.h"
#include "runs/titan_config.h"
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

/// nullopt if the line has neither a configuration nor a command that is read.
Result<std::optional<planner::JobSource>> source_of(const CommandLine& line) {
  if (!takes_job(line)) return std::nullopt;
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
  if (source) source->launch.typed = typed_beside(line);
  return source;
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
  FSDP_TRY(std::optional<planner::JobSource> source, source_of(line));
  if (!source) return LineOfJob{line, {}};
  FSDP_TRY(const planner::Job job, source->program->read(source->launch));
  FSDP_TRY(LineOfJob result, line_of_job(line, job));
  result.line.job = std::make_shared<const JobOfLine>(JobOfLine{*std::move(source), line});
  return result;
}

}  // namespace fsdp::command
