// check: known mistakes of configurations, by the rules of planner/check.

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "command/cli_commands.h"
#include "core/base/files.h"
#include "planner/check/mended_file.h"
#include "planner/check/read_runs.h"
#include "planner/check/rules.h"
#include "render/render_check.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

Result<std::vector<planner::CheckedRun>> runs_of(const CommandLine& line, const std::string& library) {
  if (line.script.empty()) return planner::read_runs(line.arguments, library);
  FSDP_TRY(planner::CheckedRun run, planner::read_run_line(line.script, library));
  std::vector<planner::CheckedRun> runs;
  runs.push_back(std::move(run));
  return runs;
}

std::string formatted(const render::CheckAnswer& answer, text::Format format) {
  switch (format) {
    case text::Format::Json:
      return render::to_json(answer);
    case text::Format::Sarif:
      return render::to_sarif(answer);
    default:
      return render::to_annotations(answer);
  }
}

struct Checked {
  render::CheckAnswer answer;
  std::vector<std::string> notes;
};

Result<Checked> checked(const CommandLine& line, const std::string& library) {
  FSDP_TRY(const std::vector<planner::CheckedRun> runs, runs_of(line, library));
  Checked result;
  for (const planner::CheckedRun& run : runs) {
    render::CheckAnswer& answer = result.answer;
    answer.files.insert(answer.files.end(), run.names.begin(), run.names.end());
    const std::vector<planner::Finding> found = planner::check(run);
    answer.findings.insert(answer.findings.end(), found.begin(), found.end());
    result.notes.insert(result.notes.end(), run.notes.begin(), run.notes.end());
  }
  return result;
}

/// Writes the files of findings with their places mended. Errors: those of writing.
Result<void> mend_files(const std::vector<planner::Finding>& findings, const Output& output) {
  std::set<std::string> files;
  for (const planner::Finding& finding : findings) files.insert(finding.place.file);
  for (const std::string& file : files) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) continue;  // The line, or a file of TRL's package.
    FSDP_TRY(const std::string text, read_text_file(file));
    const planner::MendedText mended = planner::mended_text(text, file, findings);
    if (mended.mended == 0) continue;
    if (const auto written = write_file_atomically(file, mended.text, Overwrite::Allow); !written) return written;
    output.note(fmt::format("{}: {} mended.", file, text::counted(mended.mended, "place")));
  }
  return {};
}

}  // namespace

CommandResult check_command(const CommandLine& line, const Output& output) {
  Result<Checked> result = checked(line, output.console.library);
  if (result && line.has(Option::Fix)) {
    const auto mended = mend_files(result->answer.findings, output);
    if (!mended) return tl::unexpected(Failure{mended.error(), kExitRun});
    result = checked(line, output.console.library);
  }
  if (!result) return input_failure(result.error());
  const render::CheckAnswer& answer = result->answer;
  for (const std::string& note : result->notes) output.note(note);
  const bool is_for_programs = output.format == text::Format::Json || output.format == text::Format::Sarif ||
                               output.format == text::Format::Github;
  if (is_for_programs) {
    output.console.out << formatted(answer, output.format);
  } else {
    output.print(render::document_of(answer, output.quiet, output.verbose));
  }
  return answer.count(planner::Severity::Error) > 0 ? kExitNo : kExitYes;
}

}  // namespace fsdp::command
