#include "command/cli_job.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "planner/jobs/job.h"
#include "render/choice_text.h"
#include "text/shell_text.h"

namespace fsdp::command {

namespace {

bool takes_job(const CommandLine& line) {
  return line.command == Command::Plan || line.command == Command::Fit;
}

/// nullopt if the line has neither a configuration nor a command that is read.
Result<std::optional<planner::Job>> job_of(const CommandLine& line) {
  if (!takes_job(line)) return std::nullopt;
  if (planner::is_job_line(line.script)) return planner::read_job_line(line.script);
  if (line.arguments.size() != 1) return std::nullopt;
  return planner::read_job(line.arguments.front());
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

Result<LineOfJob> with_job(const CommandLine& line) {
  FSDP_TRY(const std::optional<planner::Job> read_here, job_of(line));
  LineOfJob result{line, {}};
  if (!read_here) return result;
  const planner::Job& job = *read_here;
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
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  result.notes.insert(result.notes.begin(), std::move(meaning));
  result.notes.insert(result.notes.end(), job.notes.begin(), job.notes.end());
  return result;
}

}  // namespace fsdp::command
