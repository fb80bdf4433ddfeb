#include "planner/search/searched_space.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/parse_units.h"
#include "planner/search/candidate.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/predictors.h"
#include "planner/search/ties.h"
#include "planner/space/checkpoint_limits.h"
#include "planner/space/families.h"
#include "planner/trainers/trainers.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// Predictions of plans that do not fit, before the search tries expandable segments.
constexpr std::int64_t kPredictionsBeforeSegments = 500;

SearchOptions without_listener(SearchOptions options) {
  options.on_progress = {};
  return options;
}

/// The difference of the fastest plan from the named one. Empty if it is not worth a line.
std::string refinement_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& named,
                          const EvaluatedPoint& fastest) {
  constexpr double kWorthALine = 0.01;
  const double faster = named.cost.time / fastest.cost.time - 1;
  if (faster < kWorthALine) return "";
  // "without selective checkpoint 2 of 16", or the choices that the fastest plan adds.
  const std::string difference =
      difference_of(families, cost.plan_point_of(fastest.point), cost.plan_point_of(named.point));
  const std::string_view with = difference.starts_with("without ") ? "" : "with ";
  return fmt::format("{:.1f} % faster {}{}: {} more", faster * 100, with, difference,
                     format_bytes(Bytes(std::max<std::int64_t>(0, fastest.cost.memory - named.cost.memory))));
}

/// The note that a wrong bound leaves the answer unproven.
std::string note_on_bounds(std::int64_t num_broken) {
  return fmt::format(
      "Not proven: {} turned out to cost less than a lower bound of the search, so another plan may be better.",
      text::counted(num_broken, "plan"));
}

/// Adds the reason why the answer is not proven.
void add_doubt(WideningSearch& widening_search, SearchResult& result) {
  if (!result.proof.is_proven) {
    result.proof.doubt = note_on_bounds(widening_search.answer().num_broken_bounds());
  } else if (result.verdict == Verdict::DoesNotFit && widening_search.is_open()) {
    result.proof.stopped_early = true;
    result.proof.doubt = "Not proven: the search came to the limit of its work before it knew whether some plan fits.";
  }
}

}  // namespace

SearchOptions while_looking(const SearchOptions& options, std::shared_ptr<Predictors> predictors) {
  SearchOptions looking = options;
  looking.predictors = predictors;
  if (options.most_work == 0) return looking;
  const std::int64_t most = predictors->work() + options.most_work;
  const auto has_spent = [predictors = std::move(predictors), most] { return predictors->work() >= most; };
  if (options.gives_up) {
    looking.should_stop = [&options, has_spent] { return has_spent() || is_stopped(options); };
  } else {
    looking.has_spent = has_spent;
  }
  return looking;
}

tl::unexpected<Errors> stopped() {
  return failure("", "The search was stopped.", "");
}

SearchTask::SearchTask(const ModelSpec& its_spec, const Workload& its_workload, const Cluster& its_cluster,
                       const Space& its_space, const SearchOptions& its_options, std::shared_ptr<Predictors> predictors)
    : spec(its_spec),
      workload(its_workload),
      cluster(its_cluster),
      space(its_space),
      options(its_options),
      looking(while_looking(its_options, std::move(predictors))),
      quiet(without_listener(looking)) {}

Result<void> start(SearchedSpace& searched) {
  const PreparedSpace& prepared = searched.prepared;
  const std::int64_t most = searched.wider ? kPredictionsBeforeSegments : 0;
  FSDP_TRY(searched.widening_search, WideningSearch::make(prepared.space, prepared.index(), searched.task.cluster,
                                                          prepared.predictor_of(), searched.options, most));
  searched.widening_search->start();
  return {};
}

Result<void> search_space(SearchedSpace& searched) {
  return searched.widening_search->search(searched.other_way);
}

Result<void> go_on(SearchedSpace& searched) {
  if (searched.widening_search->is_open()) searched.widening_search->go_on();
  return {};
}

Result<void> find_closest(SearchedSpace& searched) {
  FamilySearch& family_search = searched.family_search();
  const PreparedSpace& prepared = searched.prepared;
  searched.found =
      searched.fits() ? FoundPoint{&family_search.cost, &family_search.limit.within, family_search.fitting}
                      : searched.closest.find(prepared.space, family_search, prepared.predictor_of(), searched.options);
  return {};
}

Result<void> compare_ties(SearchedSpace& searched) {
  FamilySearch& family_search = searched.family_search();
  FoundPoint& found = searched.found;
  SearchResult& result = searched.result;
  result.proof = family_search.proof();
  assert(found.point.has_value());
  if (!searched.fits() || searched.space.objective == SearchObjective::Memory) return {};
  const Families& families = family_search.limit.within;
  const auto [named, is_whole] = named_among_ties(
      family_search.cost, family_search.timed(), families, *found.point, budget_of(searched.task.cluster).count(),
      [&] { return is_stopped(searched.options) || has_spent(searched.options); },
      [&](const Plan& plan) { return is_said_exactly(plan, searched.prepared.model()); });
  result.proof.compared_ties = is_whole;
  const double slower = named.cost.time / found.point->cost.time;
  result.proof.optimality_gap = std::max(0., slower * (1 + result.proof.optimality_gap) - 1);
  result.proof.saved = Bytes(found.point->cost.memory - named.cost.memory);
  result.refinement = refinement_of(family_search.cost, families, named, *found.point);
  found.point = named;
  return {};
}

Result<void> describe_best(SearchedSpace& searched) {
  const PreparedSpace& prepared = searched.prepared;
  SearchResult& result = searched.result;
  result.facts = facts_of(prepared.model());
  result.verdict = searched.fits() ? Verdict::Fits : Verdict::DoesNotFit;
  result.objective = searched.space.objective;
  add_doubt(*searched.widening_search, result);
  if (const auto note = note_on_checkpointing(searched.task.spec, prepared.space)) {
    result.notes.push_back(*note);
  }
  if (!result.proof.doubt.empty()) result.notes.push_back(result.proof.doubt);
  result.best = candidate_of(*searched.found.cost, *searched.found.families, searched.found.plan_point());
  return {};
}

Result<void> finish(SearchedSpace& searched) {
  SearchResult& result = searched.result;
  const auto mixed =
      note_on_mixed_units(searched.prepared.space, *searched.found.families, result.best, searched.task.cluster);
  if (result.proof.doubt.empty() && mixed) result.notes.push_back(result.proof.doubt = *mixed);
  // Plans without room are compared by how little they have.
  if (searched.space.room == Room::None) {
    FSDP_TRY(result.report, report_of(searched));
  }
  return {};
}

Result<StepReport> report_of(const SearchedSpace& searched) {
  const FoundPoint& found = searched.found;
  simulator::Predictor& predictor = found.cost->predictor_of(found.plan_point());
  FSDP_TRY(StepReport report, predictor.report(searched.result.best.plan, searched.task.options.rank));
  if (found.at_least) {
    report.assumptions.push_back(
        fmt::format("Another plan may need less, but with its margin at least {}.", format_bytes(*found.at_least)));
  }
  report.assumptions.insert(report.assumptions.end(), searched.assumptions.begin(), searched.assumptions.end());
  return report;
}

}  // namespace fsdp::planner
