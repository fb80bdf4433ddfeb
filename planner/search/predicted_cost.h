#pragma once

// The cost of the points of the search space according to the predictor.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/branch_and_bound.h"
#include "planner/search/known_predictions.h"
#include "planner/search/lower_bounds.h"
#include "planner/space/families.h"
#include "planner/space/space.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// Levels of bounds, cheapest first. predicted_cost.cpp explains why each is one.
enum class CostLevel : int {
  Sums,    ///< Sums over units and calls.
  Order,   ///< Step time of the fastest plan of the box, if the CPU does not delay it.
  Time,    ///< Step time of the fastest plan of the box.
  Live,    ///< Live bytes of the smallest plan of the box.
  Memory,  ///< The prediction. Points only.
};

class PredictedCost : public CostModel {
 public:
  /// `shared`: predictions that searches of other spaces with the same predictors share. nullptr for none. REQUIRES:
  /// the arguments outlive this object; every wrapping passes check().
  PredictedCost(const Plan& base, const Families& families, PredictorOf predictor_of, Room room = Room::Spare,
                KnownPredictions* shared = nullptr);

  std::vector<Box> space() const override;
  int num_levels() const override { return 5; }
  std::string level_name(int level) const override;
  Bound bound(const Box& box, int level) override;
  void care_up_to(std::int64_t memory) override { enough_ = Bytes(memory); }
  void decide_above(std::optional<std::int64_t> budget) override { decisive_ = budget; }

  /// REQUIRES: a point.
  PlanPoint plan_point_of(const Box& point) const;
  /// The plan of a point, with the dimensions of its micro-batch.
  Plan plan_of(const PlanPoint& plan_point);
  simulator::Predictor& predictor_of(const PlanPoint& plan_point);
  /// The prediction, which the search may have made already. With `Detail::Device` it also has the times. REQUIRES: any
  /// detail but `Detail::Memory`.
  const simulator::Outcome& outcome(const PlanPoint& plan_point, simulator::Detail detail);
  /// The prediction of `Detail::Device`, which may end above `enough` or with the first rank that needs more than
  /// `too_large` (Predictor::evaluate), and the times.
  const simulator::Outcome& outcome_up_to(const PlanPoint& plan_point, Bytes enough,
                                          Bytes too_large = simulator::kWholePrediction);

  /// The prediction of memory alone. It has the times only if they were requested before.
  simulator::Outcome& memory_up_to(const PlanPoint& plan_point, Bytes enough,
                                   Bytes too_large = simulator::kWholePrediction);
  /// A lower bound of the need of every plan of a box, from a walk of the smallest one's live bytes. For a point it is
  /// tighter than the bound of a box.
  std::int64_t needed_at_least(const Box& box);

  /// Fully predicted points, in the order of the space.
  std::vector<PlanPoint> predicted() const;

  /// How often the search asked the predictor, by detail, without predictions that it knew: for benchmarks and notes.
  struct Asked {
    std::int64_t time = 0, live = 0, memory = 0;
  };
  const Asked& asked() const { return asked_; }

  /// The deciding number (Outcome::needed). A node's host memory decides about whole families
  /// (planner/search/host_limit.h).
  static std::int64_t needed_bytes(const simulator::Outcome& outcome);

 private:
  /// The plan at a box's coordinates, which are indices of the family's numbers.
  PlanPoint plan_point_at(int family, std::int32_t kept, std::int32_t checkpointed, std::int32_t way) const;
  /// The plan of a box that keeps and saves most and checkpoints least, and the opposite one.
  PlanPoint fastest_of(const Box& box) const;
  PlanPoint smallest_of(const Box& box) const;

  /// A lower bound of the time of a box by the order of its steps.
  double time_in_order(const Box& box);

  /// True if a walk of a box's live bytes may show that it is above the budget, if that alone decides.
  bool may_decide(const Box& box);
  /// LowerBounds of the box's smallest plan.
  std::int64_t smallest_sums(const Box& box);

  /// The maximum by which a walk of a box's smallest plan may exceed the need of its plans.
  Bytes slack_of(const Box& box);
  /// A lower bound of the device peak of any plan of a box, from the walk of its smallest one.
  Bytes least_of_box(const Box& box, const simulator::Outcome& smallest);

  /// The outcome of `detail`, from another space or from the predictor, up to the limits of Predictor::evaluate.
  simulator::Outcome predict(const PlanPoint& plan_point, simulator::Detail detail,
                             Bytes enough = simulator::kWholePrediction, Bytes too_large = simulator::kWholePrediction);
  /// The name of the plan in every space.
  KnownPredictions::Key key_of(const PlanPoint& plan_point);

  /// A plan's memory outside the allocator.
  struct Outside {
    Plan plan;  ///< Any plan of the mesh.
    std::vector<DeviceTerm> terms;
    Bytes bytes;
  };
  const Outside& outside_of(const PlanPoint& plan_point);

  /// The least need of a plan of this mesh whose device peak is at least `device`.
  Bytes with_margin(Bytes device, const PlanPoint& plan_point);

  /// By family, unsharded units, checkpointed blocks and the way to checkpoint.
  using Point = std::array<std::int32_t, 4>;
  static Point point_of(const PlanPoint& plan_point) {
    return {plan_point.family, plan_point.kept, plan_point.checkpointed, plan_point.way};
  }

  const Plan& base_;
  const Families& families_;
  PredictorOf predictor_of_;
  bool is_tight_;  ///< True without room to spare.
  LowerBounds lower_bounds_;
  /// [detail] A prediction of one detail does not replace one of another: the lower bound of live bytes is a law of
  /// boxes, and the exact peak of a plan is not.
  std::array<std::map<Point, simulator::Outcome>, 3> known_;
  /// LowerBounds::time_in_order of the fastest plan of a box, in nanoseconds.
  std::map<Point, double> in_order_;
  Asked asked_;
  KnownPredictions* shared_;
  std::vector<int> shared_numbers_;  ///< [family] Its number in `shared_`; -1 if not requested yet.
  Bytes enough_ = simulator::kWholePrediction;
  std::optional<std::int64_t> decisive_;  ///< CostModel::decide_above.

  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Outside>
      outside_;  ///< By mesh: ranks of a shard group, replicas, ep.

  std::map<std::int32_t, std::int64_t> above_sums_;  ///< By family: the result of its first walk less the sums.
  std::optional<std::int64_t> most_above_sums_;      ///< Over all families.
};

/// The same space with the lower bound from live bytes as a point's memory. It orders plans by memory without full
/// predictions, for the Pareto front.
class LiveCost : public CostModel {
 public:
  explicit LiveCost(PredictedCost& cost) : cost_(cost) {}

  std::vector<Box> space() const override { return cost_.space(); }
  int num_levels() const override { return cost_.num_levels(); }
  std::string level_name(int level) const override { return cost_.level_name(level); }
  Bound bound(const Box& box, int level) override;
  void decide_above(std::optional<std::int64_t> budget) override { cost_.decide_above(budget); }

 private:
  PredictedCost& cost_;
};

/// The same space by memory alone, for the plan that needs least. It requests no times, because they decide nothing
/// there.
class SmallestCost : public CostModel {
 public:
  explicit SmallestCost(PredictedCost& cost) : cost_(cost) {}

  std::vector<Box> space() const override { return cost_.space(); }
  int num_levels() const override { return 3; }
  std::string level_name(int level) const override;
  Bound bound(const Box& box, int level) override;
  void care_up_to(std::int64_t memory) override { enough_ = Bytes(memory); }

  std::int64_t num_predicted() const { return num_predicted_; }
  std::int64_t num_walked() const { return num_walked_; }
  /// The smallest of the predicted plans, and its need.
  const std::optional<EvaluatedPoint>& smallest() const { return smallest_; }
  /// Plans predicted by probe_by_live_bytes that need at most 1/kAsSmall more than the smallest.
  std::vector<EvaluatedPoint> as_small() const;
  Bytes least() const { return smallest_ ? Bytes(smallest_->cost.memory) : simulator::kWholePrediction; }
  /// Predicts a few plans that are likely to need little, until one of them needs no more than `enough`.
  void probe(Bytes enough);
  /// Predicts many more of them by rising live bytes, until `should_stop` returns true.
  void probe_by_live_bytes(const std::function<bool()>& should_stop);

 private:
  static constexpr std::int64_t kAsSmall = 100;
  Bytes most_that_is_as_small() const { return least() + Bytes(least().count() / kAsSmall); }

  /// For each box of the space, the plan that should need least, by rising sums, at most `most` of them.
  std::vector<Box> corners(std::size_t most) const;

  PredictedCost& cost_;
  Bytes enough_ = simulator::kWholePrediction;
  std::optional<EvaluatedPoint> smallest_;
  std::vector<EvaluatedPoint> probed_;
  std::int64_t num_predicted_ = 0;
  std::int64_t num_walked_ = 0;
};

/// The device memory that a process may use: a plan must fit in it.
Bytes budget_of(const Cluster& cluster);

}  // namespace fsdp::planner
