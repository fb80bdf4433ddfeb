// plan, simulate and explain: the three commands that predict.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/files.h"
#include "core/json_writer.h"
#include "core/plan_file.h"
#include "core/report_json.h"
#include "planner/cli_commands.h"
#include "planner/cli_plan_file.h"
#include "planner/cli_request.h"
#include "planner/explain.h"
#include "planner/progress_line.h"
#include "planner/remedies.h"
#include "planner/render_plan.h"
#include "planner/render_search.h"
#include "planner/result_json.h"
#include "planner/search.h"

namespace fsdp::planner {

namespace {

tl::expected<void, Failure> write_outputs(const CommandLine& line, const Output& output, const StepReport& report,
                                          const Cluster& cluster) {
  const Overwrite overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const auto write = [&](Option option, const std::string& text) -> Result<void> {
    const std::string path = line.value(option).value_or("");
    if (path == "-") {
      output.console.out << text;
      return {};
    }
    return write_file_atomically(path, text, overwrite);
  };
  Result<void> written;
  if (line.has(Option::Output)) written = write(Option::Output, to_text(PlanFile{report.plan, cluster}));
  if (written && line.has(Option::Events)) {
    JsonWriter writer;
    write_timeline(writer, report.time);
    written = write(Option::Events, std::move(writer).take());
  }
  if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  return {};
}

/// True when the plan itself goes to the standard output, and nothing else may.
bool writes_to_stdout(const CommandLine& line) {
  return line.value(Option::Output) == "-" || line.value(Option::Events) == "-";
}

ExitCode code_of(Verdict verdict) {
  return verdict == Verdict::DoesNotFit ? kExitNo : kExitYes;
}

std::vector<std::string> next_commands(const CommandLine& line, Verdict verdict) {
  const std::string saved = line.value(Option::Output).value_or("plan.json");
  std::vector<std::string> commands;
  if (!line.has(Option::Output)) commands.emplace_back("-o plan.json keeps the plan");
  commands.push_back(fmt::format("fsdp-plan explain {} · --verbose · --json", saved));
  if (verdict == Verdict::DoesNotFit) commands.emplace_back("fsdp-plan gpus lists GPUs with more memory");
  return commands;
}

void print_quietly(const Output& output, const StepReport& report) {
  output.print({verdict_of(report), summary_of(report)});
}

}  // namespace

Outcome plan_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output, Option::Events});
  Result<PlanRequest> request = read_request(line, output.console.library);
  if (!request) errors.insert(errors.end(), request.error().begin(), request.error().end());
  const auto rank = read_rank(line);
  if (!rank) errors.insert(errors.end(), rank.error().begin(), rank.error().end());
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  request->space.explain = !output.quiet;
  if (output.quiet || (!output.verbose && output.format == Format::Table)) request->space.pareto_points = 0;
  ProgressLine progress(output.console.err, output.err, !output.quiet, seconds_of_this_process);
  SearchOptions options{.rank = *rank, .on_progress = [&](const SearchProgress& now) { progress.show(now); }};
  options.with_memory = request->with_memory;
  const auto result = search(request->spec, request->workload, request->cluster, request->space, options);
  progress.erase();
  if (!result) return input_failure(result.error());

  const auto written = write_outputs(line, output, result->report, request->cluster);
  if (!written) return tl::unexpected(written.error());
  if (writes_to_stdout(line)) return code_of(result->verdict);
  if (output.format == Format::Json) {
    output.console.out << to_json(*result, &request->cluster);
  } else if (output.quiet) {
    print_quietly(output, result->report);
  } else {
    output.print(document_of(*result, output.view(), next_commands(line, result->verdict)));
  }
  return code_of(result->verdict);
}

Outcome simulate_command(const CommandLine& line, const Output& output) {
  auto prediction = predict_plan_file(line, output);
  if (!prediction) return tl::unexpected(std::move(prediction).error());
  auto& [given, predictor, report] = *prediction;
  const auto written = write_outputs(line, output, report, given.cluster);
  if (!written) return tl::unexpected(written.error());
  if (writes_to_stdout(line)) return code_of(report.verdict);
  if (output.format == Format::Json) {
    output.console.out << to_json(report, &given.cluster);
  } else if (output.quiet) {
    print_quietly(output, report);
  } else {
    output.print(document_of(report, output.view(), {fmt::format("fsdp-plan explain {}", given.path)}));
  }
  return code_of(report.verdict);
}

Outcome explain_command(const CommandLine& line, const Output& output) {
  auto prediction = predict_plan_file(line, output);
  if (!prediction) return tl::unexpected(std::move(prediction).error());
  auto& [given, predictor, report] = *prediction;

  Candidate candidate{.plan = given.file.plan,
                      .label = given.path,
                      .step = report.time.step,
                      .device_peak = report.memory.peaks.device};
  candidate.missing = std::max(Bytes(0), report.memory.peaks.device + report.memory.margin - report.memory.budget);
  // A remedy changes a size that somebody may choose, and what follows from it follows.
  Workload workload = given.workload;
  Result<std::vector<Dimension>> sizes = own_sizes_of(given.file.plan, given.spec);
  if (!sizes) return input_failure(sizes.error());
  workload.dimensions = *std::move(sizes);
  Result<std::vector<Remedy>> remedies =
      remedies_for({given.spec, workload, given.cluster, predictor, candidate, report.verdict});
  if (!remedies) return input_failure(remedies.error());
  const Explanation explanation{.binding = binding_of(report), .remedies = std::move(*remedies)};

  const auto written = write_outputs(line, output, report, given.cluster);
  if (!written) return tl::unexpected(written.error());
  if (writes_to_stdout(line)) return code_of(report.verdict);
  if (output.format == Format::Json) {
    output.console.out << to_json(report, &given.cluster, &explanation);
    return code_of(report.verdict);
  }
  Document document = {verdict_of(report), summary_of(report)};
  add_explanation(document, explanation, !output.quiet);
  if (!output.quiet) {
    View view = output.view();
    view.verbose = true;
    add_plan_and_memory(document, report, view);
    view.verbose = output.verbose;
    add_traffic_and_time(document, report, view);
    add_assumptions(document, report.assumptions);
  }
  output.print(document);
  return code_of(report.verdict);
}

}  // namespace fsdp::planner
