// Finds the best point of a space without looking at most of it.
//
// The open boxes stand in a heap, the one with the best bound on top. The top box is taken and, in this order,
//
//   asked the next level of bounds, while there is one: it goes back with a tighter bound, or is dropped because even
//     its smallest point is above the budget;
//   cut in two, when all levels of boxes were asked and it holds more than one point;
//   returned, when it is a point and its last level, the exact one, was asked.
//
// When a point comes to the top with its exact cost c, every other open box has a bound that is not below c, and the
// dropped ones hold no point within the budget: no plan of the space is better. That is the whole proof, and the counts
// are its bookkeeping. Of equals the one that comes first in the space wins: boxes with equal bounds are taken in the
// order of their first points, so a box that may hold an earlier equal is opened before a later point is returned.
//
// A smaller budget only drops more boxes, so the search for the next point of the Pareto front goes on from the same
// heap.
//
// The exact level need not be exact far above the budget, nor, when memory is the objective, above the least memory
// that any point had so far: such a point is never the answer, whatever its true cost. The model is told so, and may
// stop there. How far is decided by the nearest points above the budget, which are to be told exactly.
//
// With a limit the search becomes a hurried one: boxes whose bound of memory is well below the budget go first, because
// their points are likely to fit. The answer is then the best of these, and its gap the distance to the best open
// bound.
//
// Sources: A. H. Land, A. G. Doig, "An automatic method of solving discrete programming problems", Econometrica 28,
// 1960; best-first order as in P. E. Hart, N. J. Nilsson, B. Raphael, "A formal basis for the heuristic determination
// of minimum cost paths", IEEE Trans. SSC 4, 1968.

#include "planner/branch_and_bound.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace fsdp::planner {

namespace {

/// In a hurry a bound must leave one part in so many of the budget free to go first: bounds of memory are low.
constexpr std::int64_t kHurrySlack = 4;

/// Boxes between two reports of progress: some milliseconds.
constexpr std::int64_t kBoxesPerReport = 8;

}  // namespace

std::int64_t Box::size() const {
  std::int64_t points = 1;
  for (int i = 0; i < num_coordinates; ++i) points *= ranges[static_cast<std::size_t>(i)].size();
  return points;
}

Box Box::first_point() const {
  Box point = *this;
  for (Interval& range : point.ranges) range.last = range.first;
  return point;
}

bool comes_before(const Box& a, const Box& b) {
  if (a.family != b.family) return a.family < b.family;
  for (std::size_t i = 0; i < kMaxCoordinates; ++i) {
    if (a.ranges[i].first != b.ranges[i].first) return a.ranges[i].first < b.ranges[i].first;
  }
  return false;
}

int CostModel::split_coordinate(const Box& box) const {
  int widest = 0;
  for (int i = 1; i < box.num_coordinates; ++i) {
    if (box.ranges[static_cast<std::size_t>(i)].size() > box.ranges[static_cast<std::size_t>(widest)].size()) {
      widest = i;
    }
  }
  return widest;
}

bool BranchAndBound::IsWorse::operator()(const Node& a, const Node& b) const {
  if (comfortable && (a.bound.memory > *comfortable) != (b.bound.memory > *comfortable)) {
    return a.bound.memory > *comfortable;
  }
  if (a.key != b.key) return a.key > b.key;
  return comes_before(b.box, a.box);
}

BranchAndBound::BranchAndBound(CostModel& model, Objective objective)
    : model_(model),
      objective_(objective),
      last_level_(model.num_levels() - 1),
      least_memory_(std::numeric_limits<std::int64_t>::max()) {
  assert(last_level_ >= 1);
  counts_.too_large.assign(static_cast<std::size_t>(last_level_) + 1, 0);
  counts_.too_slow.assign(static_cast<std::size_t>(last_level_) + 1, 0);
  const Bound nothing_known{-std::numeric_limits<double>::infinity(), std::numeric_limits<std::int64_t>::min()};
  for (const Box& box : model.space()) {
    counts_.space += box.size();
    push(box, 0, nothing_known, std::numeric_limits<std::int64_t>::max());
  }
}

Bound BranchAndBound::exact_bound(const Box& point, const Bound& least, std::int64_t budget) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = nearest_.size() < kNumNearest ? kAll : std::max(budget, nearest_.back());
  if (objective_ == Objective::Memory) most = std::min(budget, least_memory_);
  most = std::max(most, least.memory);
  model_.care_up_to(most);
  const Bound bound = model_.bound(point, last_level_);
  model_.care_up_to(kAll);
  least_memory_ = std::min(least_memory_, bound.memory);
  if (bound.memory > budget && bound.memory <= most) {
    nearest_.insert(std::upper_bound(nearest_.begin(), nearest_.end(), bound.memory), bound.memory);
    if (nearest_.size() > kNumNearest) nearest_.pop_back();
  }
  return bound;
}

void BranchAndBound::push(const Box& box, int level, const Bound& least, std::int64_t budget) {
  const bool is_exact = level == last_level_;
  Bound bound = is_exact ? exact_bound(box, least, budget) : model_.bound(box, level);
  if (level > 1) ++num_dear_;
  if (is_exact) {
    ++counts_.evaluated;
    if (bound.time < least.time || bound.memory < least.memory) ++num_broken_bounds_;
  } else {
    bound.time = std::max(bound.time, least.time);
    bound.memory = std::max(bound.memory, least.memory);
  }
  if (bound.memory > budget) {
    if (is_exact) {
      too_large_.push_back({box, bound});
    } else {
      counts_.too_large[static_cast<std::size_t>(level)] += box.size();
    }
    return;
  }
  const double key = objective_ == Objective::Time ? bound.time : static_cast<double>(bound.memory);
  open_.push_back({key, bound, box, level});
  std::push_heap(open_.begin(), open_.end(), is_worse_);
}

BranchAndBound::Node BranchAndBound::pop() {
  std::pop_heap(open_.begin(), open_.end(), is_worse_);
  const Node node = open_.back();
  open_.pop_back();
  return node;
}

void BranchAndBound::tell(double key) {
  // In a hurry the top of the heap is not the lowest.
  if (!is_worse_.comfortable) at_least_ = key;
  if (++num_boxes_ % kBoxesPerReport != 0 || !told_) return;
  std::int64_t settled = counts_.evaluated;
  for (const std::int64_t points : counts_.too_large) settled += points;
  told_(settled, at_least_);
}

void BranchAndBound::order_by(std::optional<std::int64_t> comfortable) {
  is_worse_.comfortable = comfortable;
  std::make_heap(open_.begin(), open_.end(), is_worse_);
}

double BranchAndBound::lowest_key() const {
  double lowest = std::numeric_limits<double>::infinity();
  for (const Node& node : open_) lowest = std::min(lowest, node.key);
  return lowest;
}

std::optional<EvaluatedPoint> BranchAndBound::next(std::int64_t budget, std::int64_t limit) {
  const std::int64_t last_dear = num_dear_ + limit;
  if (is_worse_.comfortable) order_by(std::nullopt);
  while (!open_.empty()) {
    if (is_stopped_ && is_stopped_()) return std::nullopt;
    if (limit > 0 && num_dear_ >= last_dear && !is_worse_.comfortable) {
      order_by(budget - budget / kHurrySlack);
    }
    const Node node = pop();
    tell(node.key);
    if (node.bound.memory > budget) {
      // Pushed under a larger budget.
      if (node.level == last_level_) {
        too_large_.push_back({node.box, node.bound});
      } else {
        counts_.too_large[static_cast<std::size_t>(node.level)] += node.box.size();
      }
      continue;
    }
    if (node.level == last_level_) {
      const double lowest = is_worse_.comfortable ? lowest_key() : node.key;
      gap_ = lowest < node.key ? (node.key - lowest) / std::max(lowest, 1e-300) : 0;
      // It stays open: a proof counts it, and a later call with the same budget finds it again.
      open_.push_back(node);
      std::push_heap(open_.begin(), open_.end(), is_worse_);
      return EvaluatedPoint{node.box, node.bound};
    }
    const bool is_point = node.box.is_point();
    const bool hurries = is_worse_.comfortable && node.level >= 1;
    if (is_point || (node.level + 1 < last_level_ && !hurries)) {
      push(node.box, hurries ? last_level_ : node.level + 1, node.bound, budget);
      continue;
    }
    const auto coordinate = static_cast<std::size_t>(model_.split_coordinate(node.box));
    const Interval range = node.box.ranges[coordinate];
    assert(range.size() > 1);
    const std::int32_t middle = range.first + (range.last - range.first) / 2;
    Box half = node.box;
    half.ranges[coordinate] = {range.first, middle};
    push(half, 0, node.bound, budget);
    half.ranges[coordinate] = {middle + 1, range.last};
    push(half, 0, node.bound, budget);
  }
  gap_ = 0;
  return std::nullopt;
}

LevelCounts BranchAndBound::counts() const {
  LevelCounts counts = counts_;
  for (const Node& node : open_) {
    if (node.level != last_level_) counts.too_slow[static_cast<std::size_t>(node.level)] += node.box.size();
  }
  return counts;
}

}  // namespace fsdp::planner
