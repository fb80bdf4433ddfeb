// The same engine finds the Pareto front below the best plan on the same boxes. Memory is the lower bound from live
// bytes: it needs no full predictions, even if the allocator's part is unknown. Each further point is the fastest plan
// of the space whose live bytes are at least 1/kParetoStep below those of the point before. We then predict it in full,
// and omit it if its peak is not lower. So the front is exact in live bytes, at that distance; in device memory another
// plan that fragments less may lie a little below it. If another plan that was
// predicted on the way needs less than a point of the front and takes no longer, it replaces that point.

#include "planner/advice/other_plans.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/advice/explain.h"
#include "planner/search/candidate.h"
#include "planner/search/ties.h"
#include "planner/search/widening_search.h"

namespace fsdp::planner {

using simulator::Detail;

// Most of these predictions stopped once it was clear that the plan does not fit. We predict those in the report in
// full, and the others far enough to show that they are not nearer.
std::vector<Candidate> rejected_of(PredictedCost& cost, const Families& families,
                                   const std::vector<EvaluatedPoint>& points, const Candidate& best, Verdict verdict) {
  struct Entry {
    PlanPoint plan_point;
    std::int64_t needed = 0;  // A lower bound.
    bool is_whole = false;
  };
  std::vector<Entry> entries;
  const auto look_up = [&](const PlanPoint& plan_point, Bytes enough) {
    const simulator::Outcome& outcome = cost.memory_up_to(plan_point, enough);
    return Entry{plan_point, PredictedCost::needed_bytes(outcome), outcome.is_whole};
  };
  for (const EvaluatedPoint& point : points) {
    const PlanPoint plan_point = cost.plan_point_of(point.point);
    if (verdict == Verdict::Fits && cost.outcome_up_to(plan_point, Bytes(0)).step > best.step) continue;
    Entry entry = look_up(plan_point, Bytes(0));
    if (!entry.is_whole) entry.needed = std::max(entry.needed, cost.needed_at_least(point.point));
    entries.push_back(entry);
  }
  const auto by_need = [](const Entry& a, const Entry& b) { return a.needed < b.needed; };
  // One more than the report lists, because the best plan may be among them.
  const std::size_t num_told = std::min(entries.size(), kMostRejected + 1);
  const auto end = entries.begin() + static_cast<std::ptrdiff_t>(num_told);
  while (true) {
    std::stable_sort(entries.begin(), entries.end(), by_need);
    const auto part = std::find_if(entries.begin(), end, [](const Entry& entry) { return !entry.is_whole; });
    if (part == end) break;
    std::vector<std::int64_t> known;
    for (const Entry& entry : entries) {
      if (entry.is_whole) known.push_back(entry.needed);
    }
    const Bytes enough = known.size() < num_told ? simulator::kWholePrediction : Bytes(known[num_told - 1]);
    *part = look_up(part->plan_point, enough);
  }
  std::vector<Candidate> candidates;
  std::transform(entries.begin(), end, std::back_inserter(candidates),
                 [&](const Entry& entry) { return candidate_of(cost, families, entry.plan_point); });
  return nearest_rejected(std::move(candidates), best, verdict);
}

namespace {

/// Replaces a point by any predicted plan that needs less and takes no longer, and omits points that are then not on a
/// front. `front`: by falling device peak.
std::vector<Candidate> without_dominated(PredictedCost& cost, const Families& families, std::vector<Candidate> front) {
  for (const PlanPoint& plan_point : cost.predicted()) {
    const simulator::Outcome& outcome = cost.outcome(plan_point, Detail::Device);
    for (std::size_t i = 1; i < front.size(); ++i) {
      const bool is_no_worse = outcome.peaks.device <= front[i].device_peak && outcome.step <= front[i].step;
      const bool is_better = outcome.peaks.device < front[i].device_peak || outcome.step < front[i].step;
      // The best plan stays: equally fast plans were compared with it already.
      if (is_no_worse && is_better && outcome.step > front[0].step) front[i] = candidate_of(cost, families, plan_point);
    }
  }
  std::vector<Candidate> kept;
  for (Candidate& candidate : front) {
    const bool is_point =
        kept.empty() || (candidate.device_peak < kept.back().device_peak && candidate.step > kept.back().step);
    if (is_point) kept.push_back(std::move(candidate));
  }
  return kept;
}

}  // namespace

std::vector<Candidate> front_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
                                std::int64_t max_points, const SearchOptions& options) {
  if (max_points == 0) return {};
  LiveCost live(cost);
  BranchAndBound search(live, Objective::Time);
  search.on_progress(teller(options, SearchStage::Front, families));
  search.stop_when([&] { return is_stopped(options) || has_spent(options); });
  std::vector<Candidate> front = {candidate_of(cost, families, cost.plan_point_of(best.point))};
  std::int64_t memory = live.bound(best.point, live.num_levels() - 1).memory;
  while (static_cast<std::int64_t>(front.size()) < max_points) {
    const auto point = search.next(memory - memory / kParetoStep - 1);
    if (!point) break;
    memory = point->cost.memory;
    Candidate candidate = candidate_of(cost, families, cost.plan_point_of(point->point));
    // Live bytes are a lower bound of the peak: a plan that the allocator makes larger is not on the front.
    if (candidate.device_peak >= front.back().device_peak || candidate.step <= front.front().step) continue;
    // A smaller plan that is as fast replaces a point, except the best plan, which was chosen that way already.
    if (front.size() > 1 && candidate.step <= front.back().step * (1 + kTieShare)) front.pop_back();
    front.push_back(std::move(candidate));
  }
  front = without_dominated(cost, families, std::move(front));
  std::reverse(front.begin(), front.end());
  return front;
}

}  // namespace fsdp::planner
