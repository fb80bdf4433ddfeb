#include "planner/request/runtime_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/report/device_verdict.h"
#include "planner/request/compared_search.h"
#include "planner/search/ties.h"
#include "planner/space/batches.h"

namespace fsdp::planner {

namespace {

struct RuntimeTrial {
  ComparedRuntime runtime;
  std::optional<ResolvedRequest> request;
};

/// The first error is the reason; the others come with it.
void refuse(ComparedRuntime& runtime, const Errors& errors) {
  const Error& first = errors.front();
  runtime.why_not = first.where.empty() ? first.what : fmt::format("{}: {}", first.where, first.what);
}

void enter(ComparedRuntime& runtime, const SearchResult& result) {
  const StepReport& report = result.report;
  runtime.verdict = result.verdict;
  runtime.is_tight = is_tight(report);
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
  runtime.samples = samples_of(result.best.plan);
}

/// Those that fit, by the time of a sample; those without room to spare; those that do not fit, by how far they are
/// from fitting; then impossible ones.
std::pair<int, double> place_of_runtime(const ComparedRuntime& runtime) {
  if (!runtime.why_not.empty()) return {3, 0};
  if (runtime.verdict != Verdict::Fits) return {2, ratio(runtime.needed, runtime.budget)};
  return {runtime.is_tight ? 1 : 0, runtime.step.count() / static_cast<double>(runtime.samples)};
}

/// Among those that fit and are as fast as the first, puts the one that needs least first; of those within
/// kTieMemoryShare of it, the first in the list. REQUIRES: sorted by place.
void put_named_first(std::vector<RuntimeTrial>& trials) {
  const auto [kind, time] = place_of_runtime(trials.front().runtime);
  if (kind > 1) return;
  const auto end = std::find_if(trials.begin(), trials.end(), [&, kind = kind, time = time](const RuntimeTrial& trial) {
    const auto [other_kind, other_time] = place_of_runtime(trial.runtime);
    return other_kind != kind || other_time > (1 + kTieShare) * time;
  });
  const auto needs = [](const RuntimeTrial& trial) { return static_cast<double>(trial.runtime.needed.count()); };
  const auto least = std::min_element(
      trials.begin(), end, [&](const RuntimeTrial& a, const RuntimeTrial& b) { return needs(a) < needs(b); });
  const auto named = std::find_if(
      trials.begin(), end,
      [&, most = (1 + kTieMemoryShare) * needs(*least)](const RuntimeTrial& trial) { return needs(trial) <= most; });
  std::rotate(trials.begin(), named, named + 1);
}

/// Removes the request of those that cannot be searched.
void search_all(std::vector<RuntimeTrial>& trials, const CompareRuntimesOptions& options, Errors& errors) {
  const auto on_search = [&](std::size_t i) {
    if (options.on_runtime) options.on_runtime(trials[i].runtime.framework);
  };
  const auto found = search_briefly(requests_of(trials), options.search, on_search);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    const Result<SearchResult>& result = *found[i];
    if (result) {
      enter(trials[i].runtime, *result);
      continue;
    }
    refuse(trials[i].runtime, result.error());
    add_once(errors, result.error());
    trials[i].request.reset();
  }
}

}  // namespace

Result<RuntimeComparison> compare_runtimes(const PlanRequest& request, const std::vector<Framework>& runtimes,
                                           const std::string& library, const CompareRuntimesOptions& options) {
  // Read once: the standard input, which may be the model, cannot be read again.
  FSDP_TRY(const ModelSpec spec, read_spec(request, library));
  std::vector<RuntimeTrial> trials;
  Errors errors;
  for (const Framework framework : runtimes) {
    RuntimeTrial& trial = trials.emplace_back();
    trial.runtime.framework = framework;
    PlanRequest asked = request;
    asked.choices.runtime = framework;
    Result<ResolvedRequest> resolved = resolve(asked, library, &spec);
    if (resolved) {
      trial.request = *std::move(resolved);
    } else {
      refuse(trial.runtime, resolved.error());
      add_once(errors, resolved.error());
    }
  }
  search_all(trials, options, errors);
  std::stable_sort(trials.begin(), trials.end(), [](const RuntimeTrial& a, const RuntimeTrial& b) {
    return place_of_runtime(a.runtime) < place_of_runtime(b.runtime);
  });
  put_named_first(trials);
  if (!trials.front().request) return tl::unexpected(std::move(errors));

  ResolvedRequest best = *std::move(trials.front().request);
  if (options.on_runtime) options.on_runtime(trials.front().runtime.framework);
  FSDP_TRY(SearchResult result, search_in_full(best, options.explain, options.pareto_points, options.search));
  RuntimeComparison comparison{.request = std::move(best), .result = std::move(result)};
  for (RuntimeTrial& trial : trials) comparison.runtimes.push_back(std::move(trial.runtime));
  return comparison;
}

}  // namespace fsdp::planner
