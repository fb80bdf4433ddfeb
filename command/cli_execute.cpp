// execute: trains by a plan on this machine, and prints its prediction beside the measurement. fsdp-exec trains FSDP2;
// any other framework trains its own plans, in a Python that has it (runs/framework_run.h).

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "command/execute_proof.h"
#include "command/execute_results.h"
#include "core/base/files.h"
#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"
#include "core/cluster/cpu_cluster.h"
#include "core/report/compare.h"
#include "core/report/report_json.h"
#include "core/report/report_reader.h"
#include "core/spec/captured_model.h"
#include "render/render_comparison.h"
#include "render/render_report.h"
#include "runs/execute_ranks.h"
#include "runs/framework_run.h"
#include "runs/gpus_here.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_run.h"
#include "simulator/predictor.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

/// Effects of a framework's own run over Gloo that predictions for CPUs omit.
std::vector<std::string> left_out_on_cpus(Framework framework, std::int64_t ranks) {
  std::vector<std::string> lines;
  if (ranks > 1) {
    lines.emplace_back(
        "A thread of Gloo may hold the tensors of a collective for some time after its end: a peak may be higher by "
        "those of the largest one.");
  }
  const runs::FrameworkTrainer& trainer = runs::framework_trainer(framework);
  if (trainer.makes_whole) {
    lines.push_back(
        fmt::format("A prediction for CPUs has each rank make its part at once; {} makes more than that first, so its "
                    "initialization needs more.",
                    trainer.name));
  }
  if (trainer.gathers_into_list) {
    lines.emplace_back(
        "On CPUs FSDP1 gathers into a list, which Gloo fills from one more tensor of that size; the prediction is "
        "without it.");
  }
  return lines;
}

/// The prediction's assumptions. The answer of the plan has the notes on the model.
std::vector<std::string> assumptions_of(const Executed& executed) {
  std::vector<std::string> lines = executed.predicted.assumptions;
  const std::vector<std::string>& of_model = executed.given.model.notes;
  std::erase_if(lines, [&](const std::string& line) {
    return std::find(of_model.begin(), of_model.end(), line) != of_model.end();
  });
  return lines;
}

constexpr std::int64_t kDefaultSteps = 4;

struct Request {
  runs::Given given;
  std::optional<runs::FrameworkPython> framework;  ///< The trainer; `nullopt` for fsdp-exec.
  std::int64_t steps = kDefaultSteps;
  bool on_gpus = false;
  std::string where;  ///< The CPU, for people; the report names GPUs.
  runs::ExecutionSettings settings;
  std::string folder;  ///< The run's folder; empty for a temporary one.
  std::optional<double> tolerance;
  std::optional<Calibration> calibration;
};

/// Chooses GPUs if the plan's machines are described and this machine has as many. Notes the choice and the reason.
void choose_device(const CommandLine& line, OptionReader& reader, Request& request) {
  const auto given = line.value(Option::Device);
  const std::int64_t ranks = request.given.file.plan.mesh.world_size();
  const int gpus = runs::num_gpus_here();
  const bool fits = request.given.file.cluster.has_value() && gpus >= ranks;
  request.on_gpus = given ? *given == "cuda" : fits;
  if (request.on_gpus && !request.given.file.cluster) {
    reader.fail(Option::Device, "The plan does not name its GPUs, so nothing can be predicted.",
                "Plan again with --gpu, or write --device cpu.");
  }
  if (!request.on_gpus) {
    request.where = fmt::format("this machine's CPU over Gloo{}; bytes of tensors, not what an allocator reserves",
                                given       ? ""
                                : gpus == 0 ? ", as there is no GPU"
                                            : ", as the plan is not for its GPUs");
  }
}

/// The measured CPU of `given` or of the plan's own cluster, otherwise the shipped description.
void choose_machines(const std::optional<Cluster>& given, Request& request) {
  const std::int64_t ranks = request.given.file.plan.mesh.world_size();
  const std::optional<Cluster>& of_plan = request.given.file.cluster;
  if (request.on_gpus) {
    request.given.cluster = *of_plan;
    if (given) request.given.cluster.gpu.machine = given->gpu.machine;
    return;
  }
  const Bytes machine(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE));
  request.given.cluster = cpu_cluster(static_cast<int>(ranks), machine);
  // fsdp-exec divides the cores in the same way.
  request.given.cluster.gpu.num_sms.value = threads_of_rank(ranks);
  const bool is_of_cpu = of_plan && of_plan->gpu.compute_capability == 0;
  if (given || is_of_cpu) request.given.cluster.gpu.machine = (given ? given : of_plan)->gpu.machine;
}

std::optional<Cluster> read_measured_cluster(const CommandLine& line, const std::string& library, Request& request,
                                             OptionReader& reader) {
  if (!line.has(Option::ClusterFile)) return std::nullopt;
  const auto gpus = reader.keep(read_cluster_library(library + "/clusters"));
  if (!gpus) return std::nullopt;
  auto cluster = reader.keep(read_cluster_file(*line.value(Option::ClusterFile), gpus->gpus));
  if (!cluster) return std::nullopt;
  const std::string place = *line.value(Option::ClusterFile);
  if (cluster->gpu.machine.empty()) {
    reader.fail(Option::ClusterFile, fmt::format("{} has no measured times.", place),
                "Name a file of fsdp-plan calibrate, or leave it out.");
  } else if ((cluster->gpu.compute_capability == 0) == request.on_gpus) {
    reader.fail(Option::ClusterFile,
                fmt::format("{} is for {}, but this runs on {}.", place, cluster->gpu.name,
                            request.on_gpus ? "GPUs" : "the CPU"),
                "Write that of this machine, or --device.");
  } else if (!request.on_gpus && cluster->gpu.machine.of_ranks(request.given.file.plan.mesh.world_size()) == nullptr) {
    reader.fail(
        Option::ClusterFile,
        fmt::format("{} has no times of {}.", place, text::counted(request.given.file.plan.mesh.world_size(), "rank")),
        fmt::format("Calibrate with --gpus {}.", request.given.file.plan.mesh.world_size()));
  }
  return *std::move(cluster);
}

/// Refuses options that only fsdp-exec has.
void refuse_options_of_fsdp_exec(const CommandLine& line, Framework framework, OptionReader& reader) {
  constexpr Option kOfAll[] = {Option::Seed, Option::Weights, Option::LearningRate, Option::Accumulation,
                               Option::SaveParameters};
  const auto refuse = [&](Option option) {
    if (!line.has(option)) return;
    reader.fail(
        option,
        fmt::format("fsdp-exec has it, and {} trains this plan itself.", runs::framework_trainer(framework).name),
        "Leave it out, or plan with --runtime fsdp2.");
  };
  refuse(Option::Memory);
  refuse(Option::ChromeTrace);
  for (const OptionInfo& info : handed_on()) {
    if (std::find(std::begin(kOfAll), std::end(kOfAll), info.option) == std::end(kOfAll)) refuse(info.option);
  }
}

/// Chooses the program of the ranks, and the packages of a framework's own run.
void choose_trainer(const CommandLine& line, OptionReader& reader, Request& request) {
  const Framework framework = request.given.file.plan.runtime.framework;
  if (runs::framework_trainer(framework).is_fsdp_exec) {
    if (line.has(Option::Python)) {
      reader.fail(Option::Python, "fsdp-exec trains a plan of FSDP2, without Python.", "Add --proof, or leave it out.");
    }
    if (const auto program = reader.keep(runs::find_executor())) {
      std::error_code ignored;
      request.settings.words = {*program, std::filesystem::absolute(request.given.path, ignored).string()};
    }
    return;
  }
  refuse_options_of_fsdp_exec(line, framework, reader);
  if (line.has(Option::Calibration) && !request.calibration) {
    reader.fail(Option::Calibration, "There is no such file, and only a run of fsdp-exec writes one.",
                "Let a plan of FSDP2 of this model write it, or leave it out.");
  }
  request.framework = reader.keep(runs::find_framework_python(line.value(Option::Python).value_or(""),
                                                              runs::rehearsal_places_of_process(), framework));
  if (request.framework) request.settings.environment = request.framework->environment();
}

void hand_on_options(const CommandLine& line, Request& request) {
  auto& options = request.settings.options;
  for (const OptionInfo& info : handed_on()) {
    if (!line.has(info.option)) continue;
    options.emplace_back(flag_of(info.option));
    const std::vector<std::string>& values = line.all(info.option);
    options.insert(options.end(), values.begin(), values.end());
  }
}

std::optional<Request> read_request(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  Request request;
  if (line.has(Option::Gpus)) {
    reader.fail(Option::Gpus, "It belongs to --proof.", "Add --proof, or leave it out.");
  }
  request.tolerance = reader.share(Option::Tolerance);
  request.steps = reader.count(Option::Steps).value_or(kDefaultSteps);
  const auto timeout = reader.time(Option::Timeout);
  const auto memory = reader.size(Option::Memory);
  const auto ranks = reader.count(Option::Ranks);
  const auto calibration = reader.keep(read_calibration(line));
  auto given = reader.keep(read_planned(line.arguments.front(), library));
  if (!given) return std::nullopt;
  request.given = *std::move(given);
  if (auto refused = refuse_captured(request.given.spec)) errors.push_back(*std::move(refused));
  if (calibration) request.calibration = *calibration;
  const Plan& plan = request.given.file.plan;
  if (ranks && *ranks != plan.mesh.world_size()) {
    reader.fail(Option::Ranks, fmt::format("The plan is for {} ranks.", plan.mesh.world_size()),
                fmt::format("Plan again with --gpus {}, or leave it out.", *ranks));
  }
  choose_device(line, reader, request);
  const std::optional<Cluster> cluster = read_measured_cluster(line, library, request, reader);
  choose_trainer(line, reader, request);
  if (!errors.empty()) return std::nullopt;
  choose_machines(cluster, request);
  request.settings.ranks = plan.mesh.world_size();
  auto& options = request.settings.options;
  options = {"--steps", std::to_string(request.steps)};
  if (request.on_gpus) options.insert(options.end(), {"--device", "cuda"});
  // fsdp-exec itself divides the cores in this way, and oneDNN's memory depends on it.
  if (request.framework && !request.on_gpus) {
    options.insert(options.end(), {"--threads", std::to_string(threads_of_rank(request.settings.ranks))});
  }
  if (timeout) options.insert(options.end(), {"--timeout", fmt::format("{}", timeout->count())});
  if (memory) options.insert(options.end(), {"--mem", fmt::format("{}B", memory->count())});
  hand_on_options(line, request);
  request.folder = line.value(Option::RunFolder).value_or("");
  return request;
}

/// The rank with the highest peak, which is compared.
Result<StepReport> highest(const std::string& folder, std::int64_t ranks, std::int64_t& rank) {
  std::optional<StepReport> found;
  for (std::int64_t r = 0; r < ranks; ++r) {
    FSDP_TRY(StepReport report, read_report_file(fmt::format("{}/report-{}.json", folder, r)));
    if (found && report.memory.peaks.live <= found->memory.peaks.live) continue;
    found = std::move(report);
    rank = r;
  }
  return *std::move(found);
}

std::string speed_text(const StepReport& measured, std::int64_t ranks) {
  if (measured.time.step == Seconds(0)) return "the time of a step was not measured";
  std::string text = fmt::format("{:.3f} s a step", measured.time.step.count());
  const double tokens = measured.time.tokens_per_second_per_gpu * static_cast<double>(ranks);
  return tokens > 0 ? fmt::format("{}, {:.0f} tokens/s", text, tokens) : text;
}

/// "by PyTorch's DDP, "; empty for fsdp-exec.
std::string by_whom(const Request& request) {
  if (!request.framework) return {};
  return fmt::format("by {}, ", runs::framework_trainer(request.given.file.plan.runtime.framework).name);
}

/// The figures that a framework's own run does not report.
text::Entry not_measured(const Request& request, const StepReport& measured) {
  text::Entry entry{.label = "not measured"};
  if (measured.time.step == Seconds(0)) {
    entry.lines.emplace_back("how long a step takes: the first and the last are watched. Write --steps 3 or more");
  }
  if (!request.on_gpus) entry.lines.emplace_back("what an allocator reserves: a CPU has none");
  entry.lines.emplace_back("how long ranks wait for each other, and what each tensor is for");
  return entry;
}

CommandResult answer(const CommandLine& line, const Output& output, const Request& request, const StepReport& measured,
                     const Comparison& comparison, const Executed& executed) {
  const bool within = !request.tolerance || is_within(comparison, *request.tolerance);
  const ExitCode code = within ? kExitYes : kExitNo;
  ReportAdditions additions;
  additions.comparison = comparison;
  additions.assumptions = executed.predicted.assumptions;
  const std::vector<std::string> left_out =
      request.framework && !request.on_gpus ? left_out_on_cpus(executed.plan.runtime.framework, request.settings.ranks)
                                            : std::vector<std::string>{};
  additions.assumptions->insert(additions.assumptions->end(), left_out.begin(), left_out.end());
  const std::string json = to_json(measured, additions);
  const auto written = write_output_file(line, json);
  if (!written) return tl::unexpected(written.error());
  if (prints_json(line, output)) {
    output.console.out << json;
    return code;
  }
  const ComparedTerm& worst = comparison.terms.front();
  text::Entry verdict{.label = within ? "TRAINED" : "OUTSIDE",
                      .lines = {fmt::format("{} on {} for real: {}", request.given.model.name,
                                            text::counted(request.settings.ranks, "rank"),
                                            speed_text(measured, request.settings.ranks)),
                                worst.difference() == 0 ? std::string("every compared term is as predicted")
                                                        : fmt::format("furthest from its prediction: {}, {}",
                                                                      worst.name, render::relative_text(worst))},
                      .style = within ? text::Style::Good : text::Style::Bad};
  text::Document document = {std::move(verdict)};
  if (!output.quiet) {
    const std::string where = request.on_gpus ? measured.gpu + "; bytes of PyTorch's caching allocator" : request.where;
    document.push_back(text::Entry{.label = "measured",
                                   .lines = {fmt::format("rank {}, {}on {}", executed.rank, by_whom(request), where)}});
    render::add_comparison(document, comparison, request.tolerance.value_or(std::numeric_limits<double>::infinity()),
                           std::numeric_limits<std::size_t>::max());
    add_calibration(document, executed);
    if (request.framework) document.push_back(not_measured(request, measured));
    if (!request.on_gpus) {
      std::vector<std::string> lines = assumptions_of(executed);
      lines.insert(lines.end(), left_out.begin(), left_out.end());
      render::add_assumptions(document, lines);
    }
  }
  output.print(document);
  return code;
}

/// Writes the job of a framework's own run, and asks the runner for errors.
Errors prepare_framework_run(Request& request, const std::string& folder) {
  const std::string job = folder + "/job.json";
  const std::string log = folder + "/check.log";
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  const auto written = write_file_atomically(job, runs::job_text(request.given, request.steps), Overwrite::Allow);
  if (!written) return written.error();
  request.settings.words = request.framework->words(job);
  Result<Errors> against =
      runs::check_framework_run(*request.framework, job, request.settings.options, request.settings.ranks, log);
  return against ? *std::move(against) : std::move(against).error();
}

simulator::Predictor predictor_of(const Request& request) {
  const Cluster& known = request.given.cluster;
  return {request.given.model, request.calibration ? calibrated(known, *request.calibration) : known};
}

}  // namespace

CommandResult execute_command(const CommandLine& line, const Output& output) {
  if (line.has(Option::Proof)) return proof_command(line, output);
  Errors errors = check_outputs(line, {Option::Output, Option::ChromeTrace});
  std::optional<Request> request = read_request(line, output.console.library, errors);
  if (!errors.empty()) return input_failure(std::move(errors));

  // Refuses a plan without a prediction before it trains anything.
  simulator::Predictor predictor = predictor_of(*request);
  const Plan& plan = request->given.file.plan;
  Result<StepReport> predicted = predictor.report(plan, 0);
  if (!predicted) return input_failure(predicted.error());

  runs::Supervision supervision;
  const Result<runs::TemporaryFolder> temporary = runs::TemporaryFolder::make();
  if (!temporary) return tl::unexpected(Failure{temporary.error(), kExitRun});
  const std::string folder = request->folder.empty() ? temporary->path() : request->folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return input_failure(
        {{std::string(flag_of(Option::RunFolder)),
          fmt::format("The folder {} cannot be made: {}.", folder, error.message()), "Name one that can be written."}});
  }
  std::filesystem::remove(folder + "/store", error);
  if (request->framework) {
    Errors against = prepare_framework_run(*request, folder);
    if (!against.empty()) return input_failure(std::move(against));
  }
  if (!request->framework && (line.has(Option::RunFolder) || line.has(Option::ChromeTrace))) {
    request->settings.options.insert(request->settings.options.end(),
                                     {"--chrome-trace", folder + "/trace-{rank}.json"});
  }
  if (!request->framework && line.has(Option::Calibration) && !request->on_gpus) {
    request->settings.options.insert(request->settings.options.end(), {"--workspaces", workspaces_file(folder)});
  }
  // From an earlier run in the same folder.
  std::filesystem::remove(folder + "/report-0.json", error);
  std::filesystem::remove(workspaces_file(folder), error);
  const auto outcome =
      runs::execute_ranks(request->settings, folder, output.quiet ? nullptr : &output.console.err, supervision);
  if (!outcome) return tl::unexpected(Failure{outcome.error(), kExitRun});
  if (outcome->interrupted_by != 0) return interrupted(output);
  if (outcome->first_failed >= 0) {
    if (outcome->messages.empty()) return tl::unexpected(Failure{{{"", outcome->message, ""}}, kExitRun});
    Errors wrong;
    for (const std::string& message : outcome->messages) wrong.push_back({"", message, ""});
    return input_failure(std::move(wrong));
  }
  if (!std::filesystem::exists(folder + "/report-0.json", error)) {
    output.note("All steps are done; nothing was trained or measured.");
    return kExitYes;
  }
  std::int64_t rank = 0;
  Result<StepReport> measured = highest(folder, request->settings.ranks, rank);
  if (!measured) return tl::unexpected(Failure{measured.error(), kExitRun});
  if (rank != 0) predicted = predictor.report(plan, rank);
  if (!predicted) return input_failure(predicted.error());
  const Result<KernelWorkspaces> workspaces = read_workspaces(folder);
  if (!workspaces) return tl::unexpected(Failure{workspaces.error(), kExitRun});
  const Executed executed{request->given, predictor, plan,        *predicted,
                          *measured,      rank,      *workspaces, request->calibration};
  const auto kept = keep_results(line, folder, executed);
  if (!kept) return tl::unexpected(Failure{kept.error(), kExitRun});
  return answer(line, output, *request, *measured, compare(*predicted, *measured), executed);
}

}  // namespace fsdp::command
