#include "command/cli_phases.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "command/cli_job.h"
#include "command/cli_values.h"
#include "core/library/model_library.h"
#include "planner/jobs/generation_turn.h"
#include "simulator/predictor.h"

namespace fsdp::command {

Errors check_phases(const CommandLine& line) {
  Errors errors;
  OptionReader(line, errors).count(Option::EvaluationBatch);
  if (line.has(Option::EvaluationBatch) && !line.has(Option::Phases)) {
    errors.push_back({std::string(flag_of(Option::EvaluationBatch)), "It is the batch of an evaluation.",
                      "Add --phases, which predicts one."});
  }
  return errors;
}

Result<std::vector<JobPhaseNeed>> phases_of(const CommandLine& line, const ModelSpec& spec, Workload workload,
                                            const Cluster& cluster, const StepReport& report) {
  if (!line.has(Option::Phases)) return std::vector<JobPhaseNeed>{};
  if (report.plan.quantization) {
    return failure(std::string(flag_of(Option::Phases)), "The phases of a base in four bits are not predicted.",
                   "Leave out --phases or --quantize.");
  }
  if (report.plan.cuda_graphs) {
    return failure(std::string(flag_of(Option::Phases)), "The phases of a job with CUDA graphs are not predicted.",
                   "Leave out --phases or --cuda-graphs.");
  }
  if (!report.plan.also.empty() && line.has(Option::EvaluationBatch)) {
    return failure(std::string(flag_of(Option::EvaluationBatch)),
                   "An evaluation of another batch is not predicted with models beside the trained one.",
                   "Leave out --eval-batch or --also.");
  }
  FSDP_TRY(workload.dimensions, own_sizes_of(report.plan, spec));
  FSDP_TRY(Model model, build_model(spec, workload));
  std::optional<Model> evaluation;
  Errors none;  // check_phases has reported them.
  if (const auto batch = OptionReader(line, none).count(Option::EvaluationBatch)) {
    Workload other = workload;
    std::erase_if(other.dimensions, [](const Dimension& dimension) { return dimension.name == "batch"; });
    other.dimensions.push_back({"batch", static_cast<double>(*batch)});
    FSDP_TRY(evaluation, build_model(spec, other));
  }
  simulator::Predictor predictor(std::move(model), cluster);
  return predictor.job_phases(report, std::move(evaluation));
}

Errors add_phases(const CommandLine& line, const planner::ResolvedRequest& request, planner::SearchResult& result) {
  auto phases = phases_of(line, request.spec, request.workload, request.cluster, result.report);
  if (!phases) return phases.error();
  result.explanation.phases = *std::move(phases);
  if (line.job && line.job->engine) {
    result.explanation.phases.push_back(planner::generation_turn(*line.job->engine, result.report));
  }
  return {};
}

ExitCode with_phases(ExitCode code, const std::vector<JobPhaseNeed>& phases) {
  return std::ranges::all_of(phases, &JobPhaseNeed::fits) ? code : kExitNo;
}

}  // namespace fsdp::command
