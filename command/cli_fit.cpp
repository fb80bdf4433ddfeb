// fit: the largest micro-batch and the longest sequence that fit each kind of GPU.

#include <algorithm>
#include <utility>

#include "command/capture_first.h"
#include "command/cli_commands.h"
#include "command/cli_machines.h"
#include "command/cli_plan_file.h"
#include "command/cli_request.h"
#include "planner/request/fit.h"
#include "render/render_fit.h"
#include "text/progress_line.h"

namespace fsdp::command {

CommandResult fit_command(const CommandLine& line, const Output& output) {
  if (!line.script.empty()) return after_capture(line, output, fit_command);
  Errors errors = check_no_script(line);
  planner::FitOptions options;
  options.most_work = work_of_effort(line, errors);
  CommandLine rest = line;
  if (is_list(line, Option::GpuName)) {
    options.gpu_names = gpu_names_of(line, errors);
    rest.values[static_cast<std::size_t>(Option::GpuName)].clear();
  }
  planner::PlanRequest request = read_choices(rest, errors);
  request.model = line.arguments.front();
  if (!errors.empty()) {
    // Without a machine, uses all of the library.
    if (!names_machines(rest)) request.unread.push_back(planner::PlanChoice::Gpus);
    append(errors, planner::check_request(request, output.console.library));
    return input_failure(std::move(errors));
  }
  note_decimal_sizes(line, output);
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  options.on_question = [&](const std::string& question) { progress.show(question); };
  const auto table = planner::what_fits(request, output.console.library, options);
  progress.erase();
  if (!table) return input_failure(table.error());

  if (output.format == text::Format::Json) {
    output.console.out << to_json(render::table_of(*table));
  } else {
    output.print(render::document_of(*table, request.model, output.quiet));
  }
  const bool has_any = std::any_of(table->rows.begin(), table->rows.end(),
                                   [](const planner::FitRow& row) { return row.trains() || row.runs_tight(); });
  return has_any ? kExitYes : kExitNo;
}

}  // namespace fsdp::command
