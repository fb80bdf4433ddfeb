#include "planner/advice/explained_search.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/report/device_verdict.h"
#include "planner/advice/explain.h"
#include "planner/advice/other_plans.h"
#include "planner/advice/plan_notes.h"
#include "planner/advice/remedies.h"
#include "planner/advice/remedy_kind.h"
#include "planner/search/expandable_segments.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search_stages.h"
#include "planner/search/searched_space.h"
#include "planner/search/widening_search.h"
#include "planner/space/wrap_policy.h"

namespace fsdp::planner {

namespace {

/// True if memory alone excluded plans that are faster than the `step` found by enough for a suggestion, and expandable
/// segments may make room for one.
bool may_gain_by_segments(const Space& space, const Cluster& cluster, FamilySearch& family_search, Seconds step) {
  return expanded(space, cluster) && has_faster_that_is_too_large(family_search, step, kLeastSavedTime);
}

/// Changes that would give the plan room or, if it has room, make it faster.
Result<std::vector<Remedy>> remedies_of(SearchedSpace& searched) {
  const SearchTask& task = searched.task;
  const SearchOptions& options = searched.options;
  const SearchResult& result = searched.result;
  Candidate best = result.best;
  if (is_tight(result.report)) best.missing = missing_room(result.report.memory);
  const bool fits = has_room(result.report);
  // If nothing fits, suggestions are the answer.
  constexpr std::int64_t kTimesWhereNothingFits = 4;
  const std::int64_t most_work =
      fits ? options.most_work_of_remedies : kTimesWhereNothingFits * options.most_work_of_remedies;
  // The search of a suggestion is the same as that of a user who types it.
  const bool may_gain = fits && task.space.objective == SearchObjective::Time && searched.added_settings.empty() &&
                        may_gain_by_segments(task.space, task.cluster, searched.family_search(), result.best.step);
  return remedies_for({.spec = task.spec,
                       .workload = task.workload,
                       .cluster = task.cluster,
                       .predictor = searched.found.cost->predictor_of(searched.found.plan_point()),
                       .best = best,
                       .verdict = fits ? Verdict::Fits : Verdict::DoesNotFit,
                       .should_stop = options.should_stop,
                       .larger_gpus = options.larger_gpus,
                       .space = &task.space,
                       .with_segments = searched.with_segments,
                       .may_gain_by_segments = may_gain,
                       .added_settings = searched.added_settings,
                       .predictors = options.predictors,
                       .most_work = most_work});
}

/// Adds the requested ones of the front, the plans that were faster and do not fit, and the suggestions.
Result<void> add_others(SearchedSpace& searched) {
  const Space& space = searched.space;
  SearchResult& result = searched.result;
  const bool fits = result.verdict == Verdict::Fits;
  // The reports on other plans compare times of steps.
  if (fits && space.objective != SearchObjective::Time) return {};
  FamilySearch& family_search = searched.family_search();
  const Families& families = family_search.limit.within;
  if (fits) {
    result.pareto =
        front_of(family_search.cost, families, *searched.found.point, space.pareto_points, searched.options);
  }
  if (!space.explain) return {};
  if (space.pareto_points > 0) {
    result.explanation.rejected =
        rejected_of(family_search.cost, families, family_search.too_large(), result.best, result.verdict);
    simulator::Predictor& predictor = searched.found.cost->predictor_of(searched.found.plan_point());
    std::string note = note_on_rejected(result.explanation.rejected, predictor);
    if (!note.empty()) result.explanation.notes.push_back(std::move(note));
  }
  if (searched.options.on_progress) {
    searched.options.on_progress({.stage = SearchStage::Remedies, .space = result.proof.space});
  }
  FSDP_TRY(result.explanation.remedies, remedies_of(searched));
  return {};
}

/// Adds the requested explanations of the plan.
void explain(SearchedSpace& searched) {
  SearchResult& result = searched.result;
  result.explanation.binding = binding_of(result.report);
  if (searched.space.explain) {
    simulator::Predictor& predictor = searched.found.cost->predictor_of(searched.found.plan_point());
    result.explanation.notes = plan_notes(result.best.plan, result.report, predictor);
  }
  const std::optional<Wrap>& wrap = searched.prepared.space.wrap;
  if (wrap && is_policy(*wrap)) result.explanation.wrap = explain_policy(searched.prepared.model(), *wrap);
}

}  // namespace

Result<SearchResult> search(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                            const SearchOptions& options) {
  FSDP_TRY(FoundPlan found, find_by_stages(spec, workload, cluster, space, options));
  SearchedSpace& searched = *found.searched;
  SearchResult& result = searched.result;
  // The stages have compared the reports of plans without room.
  if (searched.space.room != Room::None) {
    FSDP_TRY(result.report, report_of(searched));
  }
  explain(searched);
  if (options.on_best) options.on_best(result);
  if (is_stopped(searched.options)) return stopped();
  if (auto others = add_others(searched); !others) return tl::unexpected(std::move(others).error());
  if (is_stopped(options)) return stopped();
  return std::move(result);
}

}  // namespace fsdp::planner
