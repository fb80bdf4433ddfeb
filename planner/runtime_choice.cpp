#include "planner/runtime_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/predictors.h"

namespace fsdp::planner {

namespace {

struct RuntimeTrial {
  ComparedRuntime runtime;
  std::optional<ResolvedRequest> request;
};

/// The first error says why; the others come with it.
void refuse(ComparedRuntime& runtime, const Errors& errors) {
  const Error& first = errors.front();
  runtime.why_not = first.where.empty() ? first.what : fmt::format("{}: {}", first.where, first.what);
}

void enter(ComparedRuntime& runtime, const SearchResult& result) {
  const StepReport& report = result.report;
  runtime.verdict = result.verdict;
  runtime.label = result.best.label;
  runtime.step = report.time.step;
  runtime.device_peak = report.memory.peaks.device;
  runtime.needed = report.memory.peaks.device + report.memory.margin;
  runtime.budget = report.memory.budget;
  for (const TrafficTotal& total : report.traffic.totals) {
    runtime.sent += total.sent_per_rank;
    runtime.collectives += total.count;
  }
  if (report.memory.host) runtime.host = report.memory.host->needed;
  const Plan& plan = result.best.plan;
  const Dimension* batch = find_dimension(plan.dimensions, kBatchDimension);
  runtime.samples =
      (batch == nullptr ? 1 : static_cast<std::int64_t>(batch->value)) * plan.accumulation * plan.mesh.world_size();
}

/// What fits, by the time of a sample; what does not, by how far it is from fitting; what cannot be.
std::pair<int, double> place_of_runtime(const ComparedRuntime& runtime) {
  if (!runtime.why_not.empty()) return {2, 0};
  if (runtime.verdict != Verdict::Fits) return {1, ratio(runtime.needed, runtime.budget)};
  return {0, runtime.step.count() / static_cast<double>(runtime.samples)};
}

}  // namespace

Result<RuntimeComparison> compare_runtimes(const PlanRequest& request, const std::vector<Framework>& runtimes,
                                           const std::string& library, const CompareRuntimesOptions& options) {
  // Once: the standard input, which may be the model, cannot be read again.
  FSDP_TRY(const ModelSpec spec, read_spec(request, library));
  std::vector<RuntimeTrial> trials;
  Errors errors;
  for (const Framework framework : runtimes) {
    RuntimeTrial& trial = trials.emplace_back();
    trial.runtime.framework = framework;
    PlanRequest asked = request;
    asked.choices.runtime = framework;
    Result<ResolvedRequest> resolved = resolve(asked, library, &spec);
    if (!resolved) {
      refuse(trial.runtime, resolved.error());
      add_once(errors, resolved.error());
      continue;
    }
    if (options.on_runtime) options.on_runtime(framework);
    Space space = resolved->space;
    space.explain = false;
    space.pareto_points = 0;
    const Result<SearchResult> found = search(resolved->spec, resolved->workload, resolved->cluster, space,
                                              {.rank = {},
                                               .on_progress = options.search.on_progress,
                                               .should_stop = options.search.should_stop,
                                               .on_best = {}});
    if (found) {
      enter(trial.runtime, *found);
      trial.request = *std::move(resolved);
    } else {
      refuse(trial.runtime, found.error());
      add_once(errors, found.error());
    }
  }
  std::stable_sort(trials.begin(), trials.end(), [](const RuntimeTrial& a, const RuntimeTrial& b) {
    return place_of_runtime(a.runtime) < place_of_runtime(b.runtime);
  });
  if (!trials.front().request) return tl::unexpected(std::move(errors));

  ResolvedRequest best = *std::move(trials.front().request);
  best.space.explain = options.explain;
  best.space.pareto_points = options.pareto_points;
  SearchOptions search_options = options.search;
  search_options.larger_gpus = best.larger_gpus;
  if (options.on_runtime) options.on_runtime(trials.front().runtime.framework);
  FSDP_TRY(SearchResult result, search(best.spec, best.workload, best.cluster, best.space, search_options));
  RuntimeComparison comparison{.request = std::move(best), .result = std::move(result)};
  for (RuntimeTrial& trial : trials) comparison.runtimes.push_back(std::move(trial.runtime));
  return comparison;
}

}  // namespace fsdp::planner
