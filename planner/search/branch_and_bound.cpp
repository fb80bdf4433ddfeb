// Finds the best point of a space without evaluating most of it.
//
// The open boxes are in a heap, the one with the best bound on top. The search takes the top box and, in this order,
//
//   asks the next level of bounds, if there is one: the box goes back with a tighter bound, or is dropped because even
//     its smallest point is above the budget;
//   cuts it in two, if all levels of boxes were asked and it holds more than one point;
//   returns it, if it is a point and its last level, the exact one, was asked.
//
// When a point comes to the top with its exact cost c, no other open box has a bound below c, and the dropped ones hold
// no point within the budget: no plan of the space is better. That is the whole proof, and the counts record it. Among
// equals, the first in the order of the space wins: boxes with equal bounds are taken in the order of their first
// points, so a box that may hold an earlier equal is opened before a later point is returned.
//
// A smaller budget only drops more boxes, so the search for the next point of the Pareto front goes on from the same
// heap.
//
// The exact level need not be exact above the budget, nor, if memory is the objective, above the least memory of any
// point so far: such a point is never the answer. The search passes that limit to the model, which may stop there.
//
// Beyond a limit the search hurries. Bounds of memory are low, so boxes whose bound is well below the budget go first:
// their points are likely to fit. Each family that may hold something better has its turn, the most promising first, in
// several rounds, each with less of the budget left free. The best point so far rules out the rest. The answer is the
// best of these, and its gap the distance to the best open bound.
//
// If the work is used up, the answer is the best evaluated point within the budget, with the same gap. If there is
// none, a last short hurry looks for one.
//
// Sources: A. H. Land, A. G. Doig, "An automatic method of solving discrete programming problems", Econometrica 28,
// 1960; best-first order as in P. E. Hart, N. J. Nilsson, B. Raphael, "A formal basis for the heuristic determination
// of minimum cost paths", IEEE Trans. SSC 4, 1968.

#include "planner/search/branch_and_bound.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <utility>

namespace fsdp::planner {

namespace {

/// In a hurry, a bound that leaves 1/slack of the budget free goes first; one round for each slack.
constexpr std::int64_t kHurrySlacks[] = {4, 8, 16, 64};
/// The minimum number of bounds above level 1 that a family may request in a round.
constexpr std::int64_t kFewestOfAFamily = 8;

/// The same for all families together, if the work is used up and no point is known.
constexpr std::int64_t kBoundsOfLastHurry = 24;

/// Boxes between two reports of progress: a few milliseconds.
constexpr std::int64_t kBoxesPerReport = 8;

}  // namespace

std::int64_t Box::size() const {
  std::int64_t points = 1;
  for (int i = 0; i < num_coordinates; ++i) points *= ranges[i].size();
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
    if (box.ranges[i].size() > box.ranges[widest].size()) {
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
  const std::int64_t most = objective_ == Objective::Memory ? std::min(budget, least_memory_) : budget;
  model_.care_up_to(std::max(most, least.memory));
  const Bound bound = model_.bound(point, last_level_);
  model_.care_up_to(kAll);
  least_memory_ = std::min(least_memory_, bound.memory);
  return bound;
}

void BranchAndBound::push(const Box& box, int level, const Bound& least, std::int64_t budget) {
  const bool is_exact = level == last_level_;
  Bound bound = is_exact ? exact_bound(box, least, budget) : model_.bound(box, level);
  const bool is_left_out = bound.memory == std::numeric_limits<std::int64_t>::min();
  if (level > 1 && !is_left_out) ++num_dear_;
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
      counts_.too_large[level] += box.size();
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
  if (++num_boxes_ % kBoxesPerReport != 0 || !listener_) return;
  listener_(num_boxes_, at_least_);
}

void BranchAndBound::order_by(std::optional<std::int64_t> comfortable) {
  is_worse_.comfortable = comfortable;
  std::make_heap(open_.begin(), open_.end(), is_worse_);
}

double BranchAndBound::lowest_key(const std::vector<Node>& nodes) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const Node& node : nodes) lowest = std::min(lowest, node.key);
  return lowest;
}

void BranchAndBound::drop(const Node& node) {
  if (node.level == last_level_) {
    too_large_.push_back({node.box, node.bound});
  } else {
    counts_.too_large[node.level] += node.box.size();
  }
}

void BranchAndBound::expand(const Node& node, std::int64_t budget) {
  const bool hurries = is_worse_.comfortable && node.level >= 1;
  if (node.box.is_point() || (node.level + 1 < last_level_ && !hurries)) {
    push(node.box, hurries ? last_level_ : node.level + 1, node.bound, budget);
    return;
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

void BranchAndBound::hurry_through(std::vector<Node>& family, std::int64_t budget, std::int64_t most_dear,
                                   std::optional<Node>& best) {
  std::vector<Node> aside;
  open_.swap(family);
  std::make_heap(open_.begin(), open_.end(), is_worse_);
  const std::int64_t last_dear = num_dear_ + most_dear;
  while (!open_.empty() && num_dear_ < last_dear && !(is_stopped_ && is_stopped_())) {
    const Node node = pop();
    tell(node.key);
    if (node.bound.memory > budget) {
      drop(node);
    } else if (best && node.key >= best->key) {
      aside.push_back(node);
    } else if (node.level == last_level_) {
      open_.push_back(node);
      break;
    } else {
      expand(node, budget);
    }
  }
  for (const Node& node : open_) {
    if (node.level == last_level_ && node.bound.memory <= budget && (!best || node.key < best->key)) best = node;
  }
  open_.insert(open_.end(), aside.begin(), aside.end());
  open_.swap(family);
}

std::optional<BranchAndBound::Node> BranchAndBound::hurry(std::int64_t budget, std::int64_t limit, bool is_last) {
  std::map<std::int32_t, std::vector<Node>> families;
  for (const Node& node : open_) families[node.box.family].push_back(node);
  open_.clear();
  const auto num_families = static_cast<std::int64_t>(families.size());
  const std::int64_t share = std::max(kFewestOfAFamily, limit / 2 / num_families);
  const std::int64_t most = is_last ? limit : std::max(limit / 2, share * num_families);
  std::optional<Node> best;
  for (const std::int64_t slack : kHurrySlacks) {
    is_worse_.comfortable = budget - budget / slack;
    std::vector<std::pair<double, std::int32_t>> order;
    for (const auto& [family, nodes] : families) order.emplace_back(lowest_key(nodes), family);
    std::sort(order.begin(), order.end());
    const std::int64_t last_dear = num_dear_ + most;
    for (const auto& [key, family] : order) {
      if ((best && key >= best->key) || num_dear_ >= last_dear) break;
      hurry_through(families[family], budget, share, best);
    }
  }
  for (const auto& [family, nodes] : families) open_.insert(open_.end(), nodes.begin(), nodes.end());
  return best;
}

std::optional<EvaluatedPoint> BranchAndBound::next(std::int64_t budget, std::int64_t limit) {
  if (objective_ == Objective::Time) model_.decide_above(budget);
  const std::optional<EvaluatedPoint> best = search(budget, limit);
  model_.decide_above(std::nullopt);
  return best;
}

std::optional<EvaluatedPoint> BranchAndBound::search(std::int64_t budget, std::int64_t limit) {
  if (!is_paused_) last_dear_ = num_dear_ + limit;
  is_paused_ = is_spent_ = false;
  if (is_worse_.comfortable) order_by(std::nullopt);
  while (!open_.empty()) {
    if (is_stopped_ && is_stopped_()) return std::nullopt;
    if (pause_ > 0 && num_dear_ >= pause_) {
      pause_ = 0;
      is_paused_ = true;
      return std::nullopt;
    }
    if (pause_at_ && !is_worse_.comfortable && open_.front().key >= *pause_at_) {
      at_least_ = open_.front().key;
      is_paused_ = true;
      return std::nullopt;
    }
    if (has_spent_ && has_spent_()) return settle_for_what_there_is(budget);
    if (limit > 0 && num_dear_ >= last_dear_ && !is_worse_.comfortable) {
      const std::optional<Node> best = hurry(budget, limit);
      order_by(budget - budget / kHurrySlacks[0]);
      if (best) return settle(*best, lowest_open(*best));
      continue;
    }
    const Node node = pop();
    tell(node.key);
    if (node.bound.memory > budget) {
      drop(node);  // A larger budget let it in.
    } else if (node.level == last_level_) {
      // It stays open: a proof counts it, and a later call with the same budget finds it again.
      open_.push_back(node);
      std::push_heap(open_.begin(), open_.end(), is_worse_);
      return settle(node, lowest_open(node));
    } else {
      expand(node, budget);
    }
  }
  gap_ = 0;
  return std::nullopt;
}

void BranchAndBound::evaluate_up_to(std::int64_t memory) {
  assert(objective_ == Objective::Memory);
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  std::vector<Node> found;
  const auto ends = [&] { return (is_stopped_ && is_stopped_()) || (has_spent_ && has_spent_()); };
  while (!open_.empty() && open_.front().bound.memory <= memory && !ends()) {
    const Node node = pop();
    tell(node.key);
    if (node.level == last_level_) {
      found.push_back(node);
    } else {
      expand(node, kAll);
    }
  }
  for (const Node& node : found) {
    open_.push_back(node);
    std::push_heap(open_.begin(), open_.end(), is_worse_);
  }
}

double BranchAndBound::lowest_open(const Node& best) const {
  return is_worse_.comfortable ? lowest_key(open_) : best.key;
}

EvaluatedPoint BranchAndBound::settle(const Node& best, double lowest) {
  gap_ = lowest < best.key ? (best.key - lowest) / std::max(lowest, 1e-300) : 0;
  return {best.box, best.bound};
}

std::optional<EvaluatedPoint> BranchAndBound::settle_for_what_there_is(std::int64_t budget) {
  std::optional<Node> best;
  for (const Node& node : open_) {
    const bool is_known = node.level == last_level_ && node.bound.memory <= budget;
    const bool is_better =
        !best || node.key < best->key || (node.key == best->key && comes_before(node.box, best->box));
    if (is_known && is_better) best = node;
  }
  if (!best && objective_ == Objective::Time) {
    best = hurry(budget, kBoundsOfLastHurry, true);
    order_by(budget - budget / kHurrySlacks[0]);
  }
  is_spent_ = true;
  if (!best) return std::nullopt;
  return settle(*best, lowest_key(open_));
}

std::vector<EvaluatedPoint> BranchAndBound::evaluated() const {
  std::vector<EvaluatedPoint> points;
  for (const Node& node : open_) {
    if (node.level == last_level_) points.push_back({node.box, node.bound});
  }
  std::sort(points.begin(), points.end(),
            [](const EvaluatedPoint& a, const EvaluatedPoint& b) { return comes_before(a.point, b.point); });
  return points;
}

LevelCounts BranchAndBound::counts() const {
  LevelCounts counts = counts_;
  for (const Node& node : open_) {
    if (node.level != last_level_) counts.too_slow[node.level] += node.box.size();
  }
  return counts;
}

}  // namespace fsdp::planner
