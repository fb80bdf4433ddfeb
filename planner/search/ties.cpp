// A plan that is 0.1 % faster is not better if it needs 5 GiB more: the band of a step is a hundred times wider. So
// after the search's answer, the fastest point t*, we ask the same engine a second question: which point needs least
// memory, if every box whose bound of time is above (1 + kTieShare) t* counts as too large? The engine's proof holds
// for that, too, until one of two limits ends it. Then we compare the points evaluated so far.
//
// Not modeled: two of the times may be wrong by different amounts. An order over the whole band of the cost model is
// another question.

#include "planner/search/ties.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/search/branch_and_bound.h"

namespace fsdp::planner {

namespace {

/// The same space, in which a point later than `latest` has an infinite need of memory.
class TiedCost : public CostModel {
 public:
  TiedCost(CostModel& cost, const EvaluatedPoint& fastest) : cost_(cost), latest_(fastest.cost.time * (1 + kTieShare)) {
    take(fastest.cost.memory);
  }
  ~TiedCost() override { cost_.decide_above(std::nullopt); }
  TiedCost(const TiedCost&) = delete;
  TiedCost& operator=(const TiedCost&) = delete;

  std::vector<Box> space() const override { return cost_.space(); }
  int num_levels() const override { return cost_.num_levels(); }
  std::string level_name(int level) const override { return cost_.level_name(level); }
  /// A little above the least, because we need the exact memory of simpler plans with nearly the same memory.
  void care_up_to(std::int64_t memory) override { cost_.care_up_to(more_than(memory)); }
  std::int64_t most() const { return more_than(least_); }

  /// From now on, boxes for which this is false have an infinite need of memory.
  void ask_only(std::function<bool(const Box&)> is_wanted) { is_wanted_ = std::move(is_wanted); }

  Bound bound(const Box& box, int level) override {
    if (is_wanted_ && !is_wanted_(box)) return {latest_, std::numeric_limits<std::int64_t>::max()};
    Bound bound = cost_.bound(box, level);
    const bool is_late = bound.time > latest_;
    if (level >= static_cast<int>(CostLevel::Live)) ++walked_;
    if (level + 1 == num_levels()) {
      ++predicted_;
      if (!is_late) {
        points_.push_back({box, bound});
        take(bound.memory);
      }
    }
    if (is_late) bound.memory = std::numeric_limits<std::int64_t>::max();
    return bound;
  }

  bool is_at(const TieLimits& limits) const { return predicted_ >= limits.predicted || walked_ >= limits.walked; }
  /// Predicted points that are not late.
  const std::vector<EvaluatedPoint>& points() const { return points_; }

 private:
  /// More than a little above the least does not matter.
  void take(std::int64_t memory) {
    least_ = std::min(least_, memory);
    cost_.decide_above(more_than(least_));
  }
  static std::int64_t more_than(std::int64_t memory) {
    const auto more = static_cast<std::int64_t>(static_cast<double>(memory) * kTieMemoryShare);
    return memory < std::numeric_limits<std::int64_t>::max() - more ? memory + more : memory;
  }

  CostModel& cost_;
  double latest_;
  std::int64_t least_ = std::numeric_limits<std::int64_t>::max();  ///< The least memory of points that are not late.
  std::int64_t predicted_ = 0;
  std::int64_t walked_ = 0;
  std::vector<EvaluatedPoint> points_;
  std::function<bool(const Box&)> is_wanted_;
};

/// The part of complexity_of that all its plans share.
int complexity_of_family(const Families& families, const Family& family) {
  const NamedWrapping& wrapping = families.wrappings[family.wrapping];
  const bool is_hybrid = family.mesh.dp_replicate() > 1 && family.mesh.dp_shard() > 1;
  int complexity = 0;
  complexity += family.cpu_offload ? 4 : 0;
  complexity += is_hybrid ? 2 : 0;
  complexity += family.reshard == ReshardAfterForward::Kind::Smaller ? 2 : 0;
  complexity += family.accumulation > 1 && !family.sync_every_micro_batch ? 1 : 0;
  complexity += wrapping.blocks_per_unit > 1 ? 1 : 0;
  complexity += wrapping.parts != BlockParts::Whole ? 2 : 0;
  complexity += wrapping.frozen ? 1 : 0;
  complexity += family.arguments != 0 ? 1 : 0;
  return complexity;
}

/// We name the plan with the lowest rank: how complex a point is, how many micro-batches it has, and its time.
using Rank = std::tuple<int, std::int64_t, double>;

struct Named {
  EvaluatedPoint point;
  bool is_said = true;
};

/// The first of the points with nearly the least memory; if a trainer's configuration can express some of them, the
/// first of those.
Named first_of(std::vector<EvaluatedPoint> points, const std::function<Rank(const EvaluatedPoint&)>& rank_of,
               const std::function<bool(const EvaluatedPoint&)>& is_said) {
  const auto least = std::min_element(points.begin(), points.end(),
                                      [](const auto& a, const auto& b) { return a.cost.memory < b.cost.memory; });
  const double enough = static_cast<double>(least->cost.memory) * (1 + kTieMemoryShare);
  std::erase_if(points, [&](const auto& point) { return static_cast<double>(point.cost.memory) > enough; });
  std::sort(points.begin(), points.end(), [&](const auto& a, const auto& b) {
    const Rank rank_a = rank_of(a);
    const Rank rank_b = rank_of(b);
    return rank_a != rank_b ? rank_a < rank_b : comes_before(a.point, b.point);
  });
  // This check takes longer than sorting, so it comes second.
  const auto said = std::find_if(points.begin(), points.end(), is_said);
  return said != points.end() ? Named{*said, true} : Named{points.front(), false};
}

}  // namespace

int complexity_of(const Families& families, const PlanPoint& plan_point) {
  const Family& family = families.families[plan_point.family];
  const NamedWrapping& wrapping = families.wrappings[family.wrapping];
  const bool is_mixed = plan_point.kept > 0 && plan_point.kept < wrapping.wrapping.longest();
  const StackCounts& counts = families.checkpointed(family, plan_point.checkpointed);
  const std::int64_t checkpointed = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool is_partial = checkpointed > 0 && checkpointed < families.num_blocks();
  int complexity = complexity_of_family(families, family);
  complexity += is_mixed ? 2 : 0;
  complexity += is_partial ? 2 : 0;
  complexity += is_alike(counts, families.blocks) ? 0 : 1;
  complexity += families.way_of(plan_point).mode == CheckpointMode::Selective && plan_point.checkpointed > 0 ? 1 : 0;
  return complexity;
}

NamedPoint named_among_ties(PredictedCost& cost, CostModel& timed, const Families& families,
                            const EvaluatedPoint& fastest, std::int64_t budget,
                            const std::function<bool()>& should_stop, const std::function<bool(const Plan&)>& is_said,
                            const TieLimits& limits) {
  const auto rank_of = [&](const EvaluatedPoint& point) -> Rank {
    const PlanPoint plan_point = cost.plan_point_of(point.point);
    // If the samples of a step differ, more of them by accumulation alone are no gain within the band.
    return {complexity_of(families, plan_point),
            &timed == &cost ? 0 : families.families[plan_point.family].accumulation, point.cost.time};
  };
  const auto is_point_said = [&](const EvaluatedPoint& point) {
    return !is_said || is_said(cost.plan_of(cost.plan_point_of(point.point)));
  };
  TiedCost tied(timed, fastest);
  const auto best = [&] {
    std::vector<EvaluatedPoint> points = {fastest};
    std::copy_if(
        tied.points().begin(), tied.points().end(), std::back_inserter(points),
        [&](const EvaluatedPoint& point) { return point.cost.memory <= budget && point.point != fastest.point; });
    return first_of(std::move(points), rank_of, is_point_said);
  };
  BranchAndBound search(tied, Objective::Memory);
  const auto should_end = [&] { return tied.is_at(limits) || (should_stop && should_stop()); };
  search.stop_when(should_end);
  if (!search.next(std::min(budget, tied.most()))) return {best().point, false};
  // A plan that needs a little more than the least may be simpler.
  const Named to_beat = best();
  const int complexity = std::get<0>(rank_of(to_beat.point));
  tied.ask_only([&](const Box& box) {
    return !to_beat.is_said || complexity_of_family(families, families.families[box.family]) <= complexity;
  });
  search.evaluate_up_to(std::min(budget, tied.most()));
  return {best().point, !should_end()};
}

}  // namespace fsdp::planner
