// plan, simulate and explain: the three commands that predict.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/files.h"
#include "core/json_writer.h"
#include "core/parse_units.h"
#include "core/plan_file.h"
#include "core/report_json.h"
#include "planner/cli_commands.h"
#include "planner/cli_library.h"
#include "planner/cli_request.h"
#include "planner/cli_values.h"
#include "planner/explain.h"
#include "planner/progress_line.h"
#include "planner/remedies.h"
#include "planner/render_plan.h"
#include "planner/render_search.h"
#include "planner/result_json.h"
#include "planner/search.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

namespace {

/// What a command predicted for a plan of a file.
struct Given {
  std::string path;
  PlanFile file;
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Model model;
};

/// A size in powers of ten is seldom what was meant: says once what was understood.
void note_decimal_sizes(const CommandLine& line, const Output& output) {
  for (const Option option : {Option::Memory, Option::HostMemory}) {
    const std::optional<std::string> text = line.value(option);
    if (!text || !is_decimal_size(*text)) continue;
    const Result<Bytes> size = parse_size(*text, flag_of(option));
    if (!size) continue;
    output.note(fmt::format("{} {} is {} bytes, {}. Write G for powers of two.", flag_of(option), *text,
                            grouped(size->count()), format_bytes(*size)));
  }
}

/// Of which rank the report is to be. Whether the machines have it is for those who know them.
Result<std::int64_t> read_rank(const CommandLine& line) {
  Errors errors;
  const std::int64_t rank = OptionReader(line, errors).count(Option::Rank, 0).value_or(0);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rank;
}

/// Where a plan and its timeline are to be written, checked before anything is computed.
Errors check_outputs(const CommandLine& line) {
  Errors errors;
  for (const Option option : {Option::Output, Option::Events}) {
    const std::optional<std::string> path = line.value(option);
    if (!path || *path == "-") continue;
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(*path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      errors.push_back({*path, fmt::format("There is no folder \"{}\".", folder.string()), "Create it first."});
    } else if (std::filesystem::is_directory(*path, ignored)) {
      errors.push_back({*path, "This is a folder.", "Give the name of a file."});
    } else if (!line.has(Option::Force) && std::filesystem::is_regular_file(*path, ignored)) {
      errors.push_back({*path, "The file exists.", "Add --force to overwrite it, or give another name."});
    }
  }
  if (line.has(Option::Output) && line.value(Option::Output) == line.value(Option::Events)) {
    errors.push_back({"--events", "The plan goes to the same file.", "Give another name."});
  }
  return errors;
}

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

/// Reads a plan file, its model and its machines.
Result<Given> read_given(const CommandLine& line, const Output& output) {
  Given given;
  given.path = line.arguments.front();
  FSDP_TRY(given.file, read_plan_file(given.path));
  const Plan& plan = given.file.plan;
  const std::string& library = output.console.library;
  if (plan.model_file == "-") {
    return failure(given.path + ": /model/file", "The model was read from the standard input.",
                   "Save the model and write its file name here.");
  }
  const std::string folder = std::filesystem::path(given.path).parent_path().string();
  FSDP_TRY(const std::string path, find_model_file(plan.model_file, library, folder));
  FSDP_TRY(given.spec, read_model_spec(path));
  given.workload = {
      .recipe = plan.recipe, .dimensions = plan.dimensions, .trainable = plan.trainable, .frozen = plan.frozen};
  FSDP_TRY(given.model, build_model(given.spec, given.workload));
  if (given.file.cluster) {
    FSDP_TRY(given.cluster, override_machines(line, *given.file.cluster, library));
  } else if (names_machines(line)) {
    FSDP_TRY(given.cluster, read_machines(line, library));
  } else {
    return failure(given.path, "The plan says nothing about its machines.",
                   "Write --gpus 4 --mem 16G, or --gpu T4 --gpus 4, or --cluster FILE.");
  }
  Errors errors = check(plan, given.model);
  for (Error& error : errors) error.where = given.path + (error.where.empty() ? "" : ": " + error.where);
  if (plan.mesh.world_size() != world_size(given.cluster)) {
    errors.push_back({given.path + ": /mesh",
                      fmt::format("The mesh has {} ranks, the machines have {}.", plan.mesh.world_size(),
                                  counted(world_size(given.cluster), "GPU")),
                      "Plan again for these machines."});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return given;
}

void print_quietly(const Output& output, const StepReport& report) {
  output.print({verdict_of(report), summary_of(report)});
}

struct PlanPrediction {
  Given given;
  simulator::Predictor predictor;
  StepReport report;
};

// What both commands on a plan file begin with: read it, and predict it for the rank that was asked for.
tl::expected<PlanPrediction, Failure> predict_plan_file(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line);
  Result<Given> given = read_given(line, output);
  if (!given) errors.insert(errors.end(), given.error().begin(), given.error().end());
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto rank = read_rank(line);
  if (!rank) return input_failure(rank.error());
  note_decimal_sizes(line, output);
  simulator::Predictor predictor(given->model, given->cluster);
  Result<StepReport> report = predictor.report(given->file.plan, *rank);
  if (!report) return input_failure(report.error());
  return PlanPrediction{*std::move(given), std::move(predictor), *std::move(report)};
}

}  // namespace

Outcome plan_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line);
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
  Result<std::vector<Remedy>> remedies =
      remedies_for({given.spec, given.workload, given.cluster, predictor, candidate, report.verdict});
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
