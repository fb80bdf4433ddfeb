#pragma once

// The cost of the points of the search space, by the predictor: what the search runs on.

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
#include "planner/space/choice.h"
#include "planner/space/space.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// Levels of bounds, the cheapest first. predicted_cost.cpp says why each is one.
enum class CostLevel : int {
  Sums,    ///< Sums over units and calls.
  Order,   ///< Step time of the fastest plan of the box, as far as the CPU does not hinder it.
  Time,    ///< Step time of the fastest plan of the box.
  Live,    ///< Live bytes of the smallest plan of the box.
  Memory,  ///< The prediction. Points only.
};

class PredictedCost : public CostModel {
 public:
  /// `shared`: what was and is predicted in other spaces with the same predictors; nullptr: nothing.
  /// REQUIRES: the arguments outlive this object; every wrapping passes check().
  PredictedCost(const Plan& base, const Families& families, PredictorOf predictor_of, Room room = Room::Spare,
                KnownPredictions* shared = nullptr);

  std::vector<Box> space() const override;
  int num_levels() const override { return 5; }
  std::string level_name(int level) const override;
  Bound bound(const Box& box, int level) override;
  void care_up_to(std::int64_t memory) override { enough_ = Bytes(memory); }
  void decide_above(std::optional<std::int64_t> budget) override { decisive_ = budget; }

  /// REQUIRES: a point.
  Choice choice_of(const Box& point) const;
  /// The plan of a point, with the dimensions of its micro-batch.
  Plan plan_of(const Choice& choice);
  simulator::Predictor& predictor_of(const Choice& choice);
  /// The prediction, kept from the search where it made one. With `Detail::Device` it has the times too.
  /// REQUIRES: any detail but `Detail::Memory`.
  const simulator::Outcome& outcome(const Choice& choice, simulator::Detail detail);
  /// The prediction of `Detail::Device`, which may end above `enough` or with the first rank that needs more than
  /// `too_large` (Predictor::evaluate), and the times.
  const simulator::Outcome& outcome_up_to(const Choice& choice, Bytes enough,
                                          Bytes too_large = simulator::kWholePrediction);

  /// The prediction of memory alone. It has the times only where they were asked for before.
  simulator::Outcome& memory_up_to(const Choice& choice, Bytes enough, Bytes too_large = simulator::kWholePrediction);
  /// What every plan of a box needs at least, by a walk of the smallest one's live bytes. For a point it is tighter
  /// than what bounds a box.
  std::int64_t needed_at_least(const Box& box);

  /// Points that were predicted in full, in the order of the space.
  std::vector<Choice> predicted() const;

  /// How often the predictor was asked, by detail, beside what was known: for benchmarks and notes.
  struct Asked {
    std::int64_t time = 0, live = 0, memory = 0;
  };
  const Asked& asked() const { return asked_; }

  /// What decides (Outcome::needed). Whether a node's own memory suffices is a matter of whole families
  /// (planner/search/host_limit.h).
  static std::int64_t needed_bytes(const simulator::Outcome& outcome);

 private:
  /// The plan of a box's coordinates: indices of the family's numbers.
  Choice choice_at(int family, std::int32_t kept, std::int32_t checkpointed, std::int32_t way) const;
  /// The plan of a box that keeps and saves most and checkpoints least, and the opposite.
  Choice fastest_of(const Box& box) const;
  Choice smallest_of(const Box& box) const;

  /// What the order of its steps says of the time of a box.
  double time_in_order(const Box& box);

  /// Whether a walk of the live bytes of a box may show it to be above the budget that alone decides.
  bool may_decide(const Box& box);
  /// LowerBounds of its smallest plan.
  std::int64_t smallest_sums(const Box& box);

  /// By how much a walk of a box's smallest plan may be above what its plans need.
  Bytes slack_of(const Box& box);
  /// The device peak of any plan of a box is at least that, by the walk of its smallest one.
  Bytes least_of_box(const Box& box, const simulator::Outcome& smallest);

  /// The outcome of `detail`, from another space or by the predictor, as far as Predictor::evaluate says.
  simulator::Outcome predict(const Choice& choice, simulator::Detail detail, Bytes enough = simulator::kWholePrediction,
                             Bytes too_large = simulator::kWholePrediction);
  /// What names the plan in every space.
  KnownPredictions::Key key_of(const Choice& choice);

  /// What lies outside of the allocator of a plan.
  struct Outside {
    Plan plan;  ///< Any of the mesh.
    std::vector<DeviceTerm> terms;
    Bytes bytes;
  };
  const Outside& outside_of(const Choice& choice);

  /// What a plan of this mesh needs at least, when its device peak is at least `device`.
  Bytes with_margin(Bytes device, const Choice& choice);

  /// By family, kept units, checkpointed blocks and what of them is saved.
  using Point = std::array<std::int32_t, 4>;
  static Point point_of(const Choice& choice) { return {choice.family, choice.kept, choice.checkpointed, choice.way}; }

  const Plan& base_;
  const Families& families_;
  PredictorOf predictor_of_;
  bool is_tight_;  ///< Without room to spare.
  LowerBounds lower_bounds_;
  /// [detail] An answer of one detail does not stand in for another: the lower bound of live bytes is a law of boxes,
  /// the exact peak of a plan is not.
  std::array<std::map<Point, simulator::Outcome>, 3> known_;
  /// LowerBounds::time_in_order of the fastest plan of a box, in nanoseconds.
  std::map<Point, double> in_order_;
  Asked asked_;
  KnownPredictions* shared_;
  std::vector<int> shared_numbers_;  ///< [family] Its number in `shared_`; -1: not asked for.
  Bytes enough_ = simulator::kWholePrediction;
  std::optional<std::int64_t> decisive_;  ///< CostModel::decide_above.

  std::map<std::pair<std::int64_t, std::int64_t>, Outside> outside_;  ///< By mesh: ranks of a shard group, replicas.

  std::map<std::int32_t, std::int64_t> above_sums_;  ///< By family: what its first walk found beside the sums.
  std::optional<std::int64_t> most_above_sums_;      ///< Over all families.
};

/// The same space, where a point's memory is the lower bound from its live bytes: an order of plans by memory that
/// needs no full predictions. For the Pareto front.
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

/// The same space by memory alone, for the plan that needs least. No time is asked for: it decides nothing there.
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
  /// The smallest of the plans that were predicted, and what it needs.
  const std::optional<EvaluatedPoint>& smallest() const { return smallest_; }
  /// Plans that were predicted by probe_by_live_bytes, and need at most one part in kAsSmall more than the smallest.
  std::vector<EvaluatedPoint> as_small() const;
  Bytes least() const { return smallest_ ? Bytes(smallest_->cost.memory) : simulator::kWholePrediction; }
  /// Predicts a few plans that are likely to need little, until one of them needs no more than `enough`.
  void probe(Bytes enough);
  /// Predicts many more of them, those first whose live bytes are least, until `should_stop` says so.
  void probe_by_live_bytes(const std::function<bool()>& should_stop);

 private:
  static constexpr std::int64_t kAsSmall = 100;
  Bytes most_that_is_as_small() const { return least() + Bytes(least().count() / kAsSmall); }

  /// For each box of the space, the plan that should need least, by rising sums, `most` of them at most.
  std::vector<Box> corners(std::size_t most) const;

  PredictedCost& cost_;
  Bytes enough_ = simulator::kWholePrediction;
  std::optional<EvaluatedPoint> smallest_;
  std::vector<EvaluatedPoint> probed_;
  std::int64_t num_predicted_ = 0;
  std::int64_t num_walked_ = 0;
};

/// The memory of a device that a process may use: what a plan must fit in.
Bytes budget_of(const Cluster& cluster);

}  // namespace fsdp::planner
