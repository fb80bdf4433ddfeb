#pragma once

// Best-first branch and bound over boxes of points: exact, lazy, and with a reason for each point that it rules out.
//
// It knows nothing of FSDP. A cost model gives it a space as disjoint boxes and, for each box, bounds of time and
// memory in several levels, each dearer and tighter than the one before. The same search runs on the predictor
// (planner/search/predicted_cost.h) and on the cost model of PyTorch's own planner (tests/support/fsdp_ilp.h).

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::planner {

/// Both ends included.
struct Interval {
  std::int32_t first = 0;
  std::int32_t last = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(last) - first + 1; }
  bool operator==(const Interval&) const = default;
};

inline constexpr int kMaxCoordinates = 8;

/// All points of one family whose coordinates lie in the intervals.
struct Box {
  std::int32_t family = 0;
  std::int32_t num_coordinates = 0;
  std::array<Interval, kMaxCoordinates> ranges{};

  std::int64_t size() const;
  bool is_point() const { return size() == 1; }
  /// The point with the least coordinates: the first one in the order of the space.
  Box first_point() const;
  bool operator==(const Box&) const = default;
};

/// The order of the space: by family, then by coordinates, the first one deciding first.
bool comes_before(const Box& a, const Box& b);

/// For a point: its cost. For a box: no point in it costs less in either.
struct Bound {
  double time = 0;
  std::int64_t memory = 0;

  bool operator==(const Bound&) const = default;
};

class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Disjoint boxes; together they are the space.
  virtual std::vector<Box> space() const = 0;

  /// Levels of bounds, cheapest first: at least 2. Boxes have the levels [0, num_levels - 1); points have one more, the
  /// last, which is exact.
  virtual int num_levels() const = 0;
  /// "formula", "live bytes": for the reasons in a proof.
  virtual std::string level_name(int level) const = 0;
  virtual Bound bound(const Box& box, int level) = 0;

  /// From now on, memory above this decides nothing: for an exact value above it, the last level may return any number
  /// between the two. Initially there is no such limit. A model may ignore it.
  virtual void care_up_to(std::int64_t /*memory*/) {}

  /// From now on, a bound of memory decides only whether it is above this budget. nullopt removes that rule, as
  /// initially. A model may then skip a bound that is likely to be below, and return the least possible number. For an
  /// exact value above the budget, the last level may return any number between the two.
  virtual void decide_above(std::optional<std::int64_t> /*budget*/) {}

  /// The coordinate to cut in two. Any coordinate with a size above 1 is right. Defaults to the widest.
  virtual int split_coordinate(const Box& box) const;
};

enum class Objective : std::uint8_t {
  Time,    ///< The fastest point within the budget; among equals the first in the order of the space.
  Memory,  ///< The point with the least memory; among equals the first in the order of the space.
};

/// Points without an evaluation to the last level, by the level that ruled them out.
struct LevelCounts {
  std::vector<std::int64_t> too_large;  ///< [num_levels] The bound of memory was above the budget.
  std::vector<std::int64_t> too_slow;   ///< [num_levels] The bound of the objective was not better than the best point.
  std::int64_t evaluated = 0;           ///< Points whose last level was asked.
  std::int64_t space = 0;

  bool operator==(const LevelCounts&) const = default;
};

struct EvaluatedPoint {
  Box point;
  Bound cost;

  bool operator==(const EvaluatedPoint&) const = default;
};

/// One search. A caller may call `next` again with a smaller budget: points ruled out stay ruled out, so a whole Pareto
/// front costs little more than its first point.
class BranchAndBound {
 public:
  BranchAndBound(CostModel& model, Objective objective);

  /// The best point with memory <= budget; nullopt if no point of the space fits. After `limit` bounds above level 1 (0
  /// for no limit) it accepts a good one, and gap() returns how good. REQUIRES: budgets that never rise.
  std::optional<EvaluatedPoint> next(std::int64_t budget, std::int64_t limit = 0);

  /// After `next` with the objective Memory: evaluates all points that need no more than `memory`, unless it is
  /// stopped.
  void evaluate_up_to(std::int64_t memory);

  /// A lower bound of the objective of every remaining point: that of the box that was taken last.
  double at_least() const { return at_least_; }
  /// The evaluated points within the budget, in the order of the space.
  std::vector<EvaluatedPoint> evaluated() const;
  /// Makes `next` return nullopt once, after `bounds` bounds above level 1. The next call with the same arguments
  /// resumes.
  void pause_after(std::int64_t bounds) { pause_ = bounds; }
  /// Also pauses once nothing is left below this value of the objective. nullopt for never.
  void pause_at(std::optional<double> least) { pause_at_ = least; }
  /// True if it is paused for that reason.
  bool is_paused_at_least() const { return is_paused_ && pause_at_ && at_least_ >= *pause_at_; }
  bool is_paused() const { return is_paused_; }

  /// After `next`: why no other point is better. evaluated + all counts = space.
  LevelCounts counts() const;
  /// Called every few boxes with the number of boxes so far and the least objective that is still possible.
  using OnProgress = std::function<void(std::int64_t looked_at, double at_least)>;
  void on_progress(OnProgress listener) { listener_ = std::move(listener); }
  /// Called at every box. Once it returns true, `next` gives up and returns nullopt.
  void stop_when(std::function<bool()> is_stopped) { is_stopped_ = std::move(is_stopped); }
  /// Called at every box. Once it returns true, `next` takes the best evaluated point; with the objective Time and no
  /// such point, the result of a last short hurry. nullopt if none was found.
  void settle_when(std::function<bool()> has_spent) { has_spent_ = std::move(has_spent); }
  /// True if the last `next` ended that way. Without a point, it is then unknown whether there is one.
  bool is_spent() const { return is_spent_; }
  /// Evaluated points above the budget, in the order of evaluation. Their memory may be any number between the budget
  /// and the exact one (CostModel::care_up_to, CostModel::decide_above).
  const std::vector<EvaluatedPoint>& too_large() const { return too_large_; }
  /// How far the last answer may be from the best, relative: 0 unless a limit stopped the search.
  double gap() const { return gap_; }
  /// Points that were cheaper than a bound of a box that held them. Above 0, the model's bounds are wrong, and the
  /// answer is not proven.
  std::int64_t num_broken_bounds() const { return num_broken_bounds_; }

 private:
  struct Node {
    double key = 0;
    Bound bound;
    Box box;
    int level = 0;  ///< The last level that was asked.
  };
  struct IsWorse {
    /// In a hurry: memory well below the budget; such boxes go first.
    std::optional<std::int64_t> comfortable;
    bool operator()(const Node& a, const Node& b) const;
  };

  std::optional<EvaluatedPoint> search(std::int64_t budget, std::int64_t limit);
  /// Asks the last level for as much as the search needs.
  Bound exact_bound(const Box& point, const Bound& least, std::int64_t budget);
  void push(const Box& box, int level, const Bound& least, std::int64_t budget);
  Node pop();
  void tell(double key);
  /// Counts a box, or stores a point, that is above the budget.
  void drop(const Node& node);
  /// Asks for the next level of bounds, or cuts in two.
  void expand(const Node& node, std::int64_t budget);
  /// The best point within the budget that the turns of the families find. `is_last`: not every family has its turn.
  std::optional<Node> hurry(std::int64_t budget, std::int64_t limit, bool is_last = false);
  void hurry_through(std::vector<Node>& family, std::int64_t budget, std::int64_t most_dear, std::optional<Node>& best);
  /// The lowest key of the open boxes if the heap is not in its order, otherwise that of `best`.
  double lowest_open(const Node& best) const;
  /// The answer, with its gap to the lowest key that is open.
  EvaluatedPoint settle(const Node& best, double lowest);
  /// The answer if the work is used up.
  std::optional<EvaluatedPoint> settle_for_what_there_is(std::int64_t budget);
  void order_by(std::optional<std::int64_t> comfortable);
  static double lowest_key(const std::vector<Node>& nodes);

  CostModel& model_;
  Objective objective_;
  int last_level_;
  std::vector<Node> open_;  ///< A heap.
  IsWorse is_worse_;
  std::vector<EvaluatedPoint> too_large_;
  LevelCounts counts_;
  std::int64_t num_dear_ = 0;  ///< Number of requested bounds above level 1.
  OnProgress listener_;
  std::function<bool()> is_stopped_;
  std::function<bool()> has_spent_;
  bool is_spent_ = false;
  double at_least_ = 0;
  std::int64_t num_boxes_ = 0;  ///< Boxes taken from the heap.
  double gap_ = 0;
  std::int64_t pause_ = 0;  ///< Bounds above level 1 after which it pauses. 0 for never.
  std::optional<double> pause_at_;
  bool is_paused_ = false;
  std::int64_t last_dear_ = 0;  ///< The limit of `next`, on the same count.
  std::int64_t num_broken_bounds_ = 0;
  std::int64_t least_memory_;  ///< Among the evaluated points.
};

}  // namespace fsdp::planner
