// From a model, a cluster and a space to the best plan with its proof.
//
// The space is written out as families (planner/choice.h), each family is a box of the branch and bound
// (planner/branch_and_bound.h), and the predictor prices what is left (planner/predicted_cost.h). The Pareto front is
// the same search going on: after the best plan within a budget, the next smaller point of the front is the best plan
// within a budget that is a step below what the last one needs. A search that ends by itself gives the fastest plan of
// the space within that memory. One that needs too many predictions settles for a good plan, and the largest gap of the
// front is noted. Points less than a step apart are not told apart.
//
// When no plan fits, the same search with the other objective finds the plan that needs least.

#include "planner/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "planner/choice.h"
#include "planner/explain.h"
#include "planner/predicted_cost.h"
#include "planner/predictors.h"
#include "planner/remedies.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;
using simulator::Outcome;

Candidate candidate_of(PredictedCost& cost, const Families& families, const Choice& choice) {
  const Outcome& outcome = cost.outcome(choice, Detail::Memory);
  const Bytes budget = budget_of(cost.predictor_of(choice).cluster());
  Candidate candidate;
  candidate.plan = cost.plan_of(choice);
  candidate.label = label_of(families, choice);
  candidate.step = outcome.step;
  candidate.device_peak = outcome.peaks.device;
  candidate.missing = Bytes(std::max<std::int64_t>(0, PredictedCost::needed_bytes(outcome, budget) - budget.count()));
  return candidate;
}

Proof proof_of(const BranchAndBound& search, const PredictedCost& cost) {
  const LevelCounts counts = search.counts();
  Proof proof;
  proof.space = counts.space;
  proof.evaluated = counts.evaluated;
  proof.optimality_gap = search.gap();
  const auto add = [&](std::string_view verdict, const std::vector<std::int64_t>& by_level) {
    for (std::size_t level = 0; level < by_level.size(); ++level) {
      if (by_level[level] == 0) continue;
      proof.ruled_out.push_back(
          {fmt::format("{}, by {}", verdict, cost.level_name(static_cast<int>(level))), by_level[level]});
    }
  };
  add("too large", counts.too_large);
  add("not better", counts.too_slow);
  return proof;
}

struct Front {
  std::vector<Candidate> points;  ///< By rising device peak, the best plan last.
  double gap = 0;                 ///< The largest one.
};

Front front_of(BranchAndBound& search, PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
               const Space& space) {
  Front front;
  std::optional<EvaluatedPoint> point = best;
  while (point && static_cast<std::int64_t>(front.points.size()) < space.pareto_points) {
    Candidate candidate = candidate_of(cost, families, cost.choice_of(point->point));
    front.gap = std::max(front.gap, search.gap());
    // A point that was settled for may be slower than a later, smaller one.
    std::erase_if(front.points, [&](const Candidate& other) {
      return other.step >= candidate.step && other.label != label_of(families, cost.choice_of(best.point));
    });
    front.points.push_back(std::move(candidate));
    point = search.next(point->cost.memory - point->cost.memory / kParetoStep - 1, space.max_predictions_of_front);
  }
  std::reverse(front.points.begin(), front.points.end());
  return front;
}

Result<Families> families_for(const Space& space, const Model& model, const Cluster& cluster) {
  FSDP_TRY(Families families, families_of(space, model, cluster));
  // Whether a plan is valid depends on its units alone, so one plan for each way of wrapping tells.
  Errors errors;
  std::vector<bool> is_valid;
  for (std::size_t w = 0; w < families.wrappings.size(); ++w) {
    const auto family = std::find_if(families.families.begin(), families.families.end(), [&](const Family& candidate) {
      return candidate.wrapping == static_cast<int>(w);
    });
    is_valid.push_back(false);
    if (family == families.families.end()) continue;
    const Choice choice{static_cast<int>(family - families.families.begin()), family->kept.front(),
                        family->checkpointed.front()};
    Errors found = check(plan_of(space.base, families, choice), model);
    is_valid.back() = found.empty();
    if (errors.empty()) errors = std::move(found);
  }
  std::erase_if(families.families,
                [&](const Family& family) { return !is_valid[static_cast<std::size_t>(family.wrapping)]; });
  if (families.families.empty()) return tl::unexpected(std::move(errors));
  return families;
}

}  // namespace

Result<SearchResult> search(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                            const Space& space) {
  FSDP_TRY(const std::vector<Batch> batches, batches_of(space, cluster));
  std::vector<std::int64_t> micro_batches;
  for (const Batch& batch : batches) micro_batches.push_back(batch.micro_batch);
  FSDP_TRY(Predictors predictors, Predictors::make(spec, workload, cluster, micro_batches));
  const Model& model = predictors.of(micro_batches.front()).model();
  Space filled = space;
  filled.base.model = model.name;
  filled.base.model_fingerprint = fingerprint_of(model);
  FSDP_TRY(const Families families, families_for(filled, model, cluster));

  PredictedCost cost(filled.base, families,
                     [&](std::int64_t micro_batch) -> simulator::Predictor& { return predictors.of(micro_batch); });
  BranchAndBound fastest(cost, Objective::Time);
  std::optional<EvaluatedPoint> best = fastest.next(budget_of(cluster).count(), space.max_predictions);

  SearchResult result;
  result.verdict = best ? Verdict::Fits : Verdict::DoesNotFit;
  result.proof = proof_of(fastest, cost);
  std::vector<EvaluatedPoint> rejected = fastest.too_large();
  if (best) {
    Front front = front_of(fastest, cost, families, *best, space);
    result.pareto = std::move(front.points);
    if (front.gap > 0) {
      result.notes.push_back(fmt::format(
          "The smaller plans of the front are within {:.1f} % of the fastest of their size.", 100 * front.gap));
    }
  } else {
    BranchAndBound smallest(cost, Objective::Memory);
    best = smallest.next(std::numeric_limits<std::int64_t>::max(), space.max_predictions);
    assert(best.has_value());
  }
  if (fastest.num_broken_bounds() > 0) {
    result.notes.push_back(
        fmt::format("{} plans were cheaper than a bound said: the proof does not hold for this model.",
                    fastest.num_broken_bounds()));
  }
  const Choice choice = cost.choice_of(best->point);
  result.best = candidate_of(cost, families, choice);
  FSDP_TRY(result.report, cost.predictor_of(choice).report(result.best.plan));
  std::vector<Candidate> candidates;
  for (const EvaluatedPoint& point : rejected) {
    candidates.push_back(candidate_of(cost, families, cost.choice_of(point.point)));
  }
  result.explanation.binding = binding_of(result.report);
  result.explanation.rejected = nearest_rejected(std::move(candidates), result.best, result.verdict);
  if (space.explain) {
    FSDP_TRY(result.explanation.remedies,
             remedies_for({spec, workload, cluster, cost.predictor_of(choice), result.best, result.verdict}));
  }
  return result;
}

}  // namespace fsdp::planner
