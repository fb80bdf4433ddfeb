// A box holds the plans of one family whose number of unsharded units, number of checkpointed blocks and way to
// checkpoint lie in three intervals. The family orders its blocks: the larger of two numbers includes all of the
// smaller's blocks. The later of two ways saves all that the earlier one does.
//
// Keeping one more unit unsharded removes an all-gather and a copy from the backward, and holds that unit from its
// forward to its backward: time does not rise, memory does not fall. Checkpointing one more block adds its
// recomputation and drops its activations: time does not fall, memory does not rise. Saving more of it does the
// opposite. So one plan of a box, which keeps most and recomputes least, is its fastest, and the opposite one is its
// smallest. Their predictions bound the box: the step time of the fastest, and the live bytes of the smallest, under
// FSDP2 in the allocator's pools. (The allocator's reserve is no such bound: it can shrink if a tensor is added. So a
// point within the budget by its live bytes is always predicted in full.)
//
// Sums omit the waits between collectives and compute, and are a sixth to a half too low. The step time of the fastest
// plan without its CPU is nearly the step time itself, at a hundredth of the cost. If it is known
// (LowerBounds::time_in_order), it bounds boxes, and only points use the step time.
//
// Two cases break the law of time. Code that caches keys and values in training stops doing so with the first
// checkpointed block: plans without one are boxes of their own there. And if units lie inside blocks, recomputing a
// block gathers all of them at once, ahead of the gradients' reductions, while the backward of another block gathers
// one after the other: more checkpointing may wait less. Then the step time bounds boxes with one number of
// checkpointed blocks only, and sums bound the others; no order of events changes a sum. The same holds for ZeRO-3,
// whose coordinator gathers ahead within a limit, and for FSDP1 with CPU offload, whose gathers and reductions wait for
// copies to and from the host: a recomputation can move them to where less waits for them.
//
// These are laws of this simulator, not of every possible one. The tests compare them with brute force, and the search
// counts every point that is cheaper than one of its bounds.

#include "planner/search/predicted_cost.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "planner/space/search_traits.h"
#include "simulator/memory/device_terms.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;

/// Times are compared in whole nanoseconds. Bounds are rounded down by one more: sums in another order differ in the
/// last digits.
double rounded(Seconds time) {
  return std::round(time.count() * 1e9);
}
double rounded_down(Seconds time) {
  return std::floor(time.count() * 1e9 * (1 - 1e-12)) - 1;
}

}  // namespace

Bytes budget_of(const Cluster& cluster) {
  return cluster.gpu.usable_memory.value;
}

PredictedCost::PredictedCost(const Plan& base, const Families& families, PredictorOf predictor_of, Room room,
                             KnownPredictions* shared)
    : base_(base),
      families_(families),
      predictor_of_(std::move(predictor_of)),
      is_tight_(room == Room::None),
      lower_bounds_(base, families, predictor_of_, is_tight_),
      shared_(shared),
      shared_numbers_(families.families.size(), -1) {}

std::vector<Box> PredictedCost::space() const {
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < families_.families.size(); ++i) {
    const Family& family = families_.families[i];
    Box box;
    box.family = static_cast<std::int32_t>(i);
    box.num_coordinates = 3;
    box.ranges[0].last = static_cast<std::int32_t>(family.kept.size()) - 1;
    box.ranges[1].last = static_cast<std::int32_t>(family.checkpointed.size()) - 1;
    box.ranges[2].last = static_cast<std::int32_t>(family.ways.size()) - 1;
    // Without checkpointing there is one way. And if the first checkpointed block takes work off the step, such plans
    // stand alone.
    const bool stands_alone = lower_bounds_.first_checkpoint_saves_work() || family.ways.size() > 1;
    if (family.has_none() && stands_alone) {
      Box none = box;
      none.ranges[1].last = none.ranges[2].last = 0;
      boxes.push_back(none);
      box.ranges[1].first = 1;
    }
    if (box.ranges[1].size() > 0) boxes.push_back(box);
  }
  return boxes;
}

std::string PredictedCost::level_name(int level) const {
  switch (static_cast<CostLevel>(level)) {
    case CostLevel::Sums:
      return "sums over units and blocks";
    case CostLevel::Order:
    case CostLevel::Time:
      return "step time";
    case CostLevel::Live:
      return "live bytes";
    case CostLevel::Memory:
      return "device memory";
  }
  return "";
}

PlanPoint PredictedCost::plan_point_at(int family, std::int32_t kept, std::int32_t checkpointed,
                                       std::int32_t way) const {
  const Family& numbers = families_.families[family];
  return {family, numbers.kept[kept], numbers.checkpointed[checkpointed], way};
}

PlanPoint PredictedCost::fastest_of(const Box& box) const {
  return plan_point_at(box.family, box.ranges[0].last, box.ranges[1].first, box.ranges[2].last);
}

PlanPoint PredictedCost::smallest_of(const Box& box) const {
  return plan_point_at(box.family, box.ranges[0].first, box.ranges[1].last, box.ranges[2].first);
}

PlanPoint PredictedCost::plan_point_of(const Box& point) const {
  assert(point.is_point());
  return fastest_of(point);
}

simulator::Predictor& PredictedCost::predictor_of(const PlanPoint& plan_point) {
  return predictor_of_(families_.families[plan_point.family].micro_batch);
}

Plan PredictedCost::plan_of(const PlanPoint& plan_point) {
  Plan plan = planner::plan_of(base_, families_, plan_point);
  plan.dimensions = predictor_of(plan_point).model().dimensions;
  return plan;
}

KnownPredictions::Key PredictedCost::key_of(const PlanPoint& plan_point) {
  const auto family = static_cast<std::size_t>(plan_point.family);
  int& number = shared_numbers_[family];
  if (number < 0) number = shared_->number_of(base_, families_, families_.families[family]);
  return KnownPredictions::key_of(number, families_, plan_point);
}

simulator::Outcome PredictedCost::predict(const PlanPoint& plan_point, Detail detail, Bytes enough, Bytes too_large) {
  const std::optional<KnownPredictions::Key> key = shared_ ? std::optional(key_of(plan_point)) : std::nullopt;
  if (const simulator::Outcome* known = key ? shared_->find(detail, *key) : nullptr) {
    if (known->is_whole || known->needed > std::min(enough, too_large)) return *known;
  }
  const bool is_memory = detail == Detail::Device || detail == Detail::Tight;
  (is_memory ? asked_.memory : detail == Detail::Time ? asked_.time : asked_.live) += 1;
  auto outcome =
      predictor_of(plan_point).evaluate(planner::plan_of(base_, families_, plan_point), detail, enough, too_large);
  assert(outcome.has_value());
  if (key) shared_->keep(detail, *key, *outcome);
  return *std::move(outcome);
}

simulator::Outcome& PredictedCost::memory_up_to(const PlanPoint& plan_point, Bytes enough, Bytes too_large) {
  const Point point = point_of(plan_point);
  std::map<Point, simulator::Outcome>& known = known_[static_cast<std::size_t>(Detail::Device)];
  const auto found = known.find(point);
  if (found != known.end()) {
    simulator::Outcome& outcome = found->second;
    if (outcome.is_whole || outcome.needed > std::min(enough, too_large)) return outcome;
  }
  simulator::Outcome outcome =
      is_tight_ ? predict(plan_point, Detail::Tight) : predict(plan_point, Detail::Device, enough, too_large);
  return known.insert_or_assign(point, outcome).first->second;
}

const simulator::Outcome& PredictedCost::outcome_up_to(const PlanPoint& plan_point, Bytes enough, Bytes too_large) {
  simulator::Outcome& outcome = memory_up_to(plan_point, enough, too_large);
  const simulator::Outcome& times = this->outcome(plan_point, Detail::Time);
  outcome.step = times.step;
  outcome.compute = times.compute;
  outcome.exposed_communication = times.exposed_communication;
  return outcome;
}

const simulator::Outcome& PredictedCost::outcome(const PlanPoint& plan_point, Detail detail) {
  if (detail == Detail::Device) return outcome_up_to(plan_point, simulator::kWholePrediction);
  const Point point = point_of(plan_point);
  std::map<Point, simulator::Outcome>& known = known_[static_cast<std::size_t>(detail)];
  if (const auto found = known.find(point); found != known.end()) return found->second;
  return known.emplace(point, predict(plan_point, detail)).first->second;
}

std::vector<PlanPoint> PredictedCost::predicted() const {
  std::vector<PlanPoint> choices;
  for (const auto& [point, outcome] : known_[static_cast<std::size_t>(Detail::Device)]) {
    if (outcome.is_whole) choices.push_back({point[0], point[1], point[2], point[3]});
  }
  return choices;
}

std::int64_t PredictedCost::needed_bytes(const simulator::Outcome& outcome) {
  return outcome.needed.count();
}

const PredictedCost::Outside& PredictedCost::outside_of(const PlanPoint& plan_point) {
  const Mesh& mesh = families_.families[plan_point.family].mesh;
  const auto key = std::tuple(mesh.dp_shard(), mesh.dp_replicate(), mesh.ep);
  if (const auto found = outside_.find(key); found != outside_.end()) return found->second;
  Outside outside{.plan = base_};
  outside.plan.mesh = mesh;
  outside.terms = simulator::outside_terms(predictor_of(plan_point).cluster(), outside.plan);
  for (const DeviceTerm& term : outside.terms) outside.bytes += term.bytes;
  return outside_.emplace(key, std::move(outside)).first->second;
}

Bytes PredictedCost::with_margin(Bytes device, const PlanPoint& plan_point) {
  const Outside& outside = outside_of(plan_point);
  return device + simulator::margin(device - outside.bytes, outside.terms, outside.plan);
}

// The live peaks of two plans of a family differ by nearly as much as their sums. So the first walk predicts the
// others, and a walk whose bound would stay within the budget is not worth its time.
bool PredictedCost::may_decide(const Box& box) {
  if (!decisive_ || !most_above_sums_ || is_tight_ || box.is_point()) return true;
  constexpr std::int64_t kCertainty = 64;
  const std::int64_t sums = smallest_sums(box);
  const auto walked = above_sums_.find(box.family);
  const std::int64_t more = walked != above_sums_.end() ? walked->second : *most_above_sums_;
  return sums + more - slack_of(box).count() > *decisive_ - *decisive_ / kCertainty;
}

std::int64_t PredictedCost::smallest_sums(const Box& box) {
  const PlanPoint plan_point = smallest_of(box);
  return lower_bounds_
      .bound(families_.families[box.family], {plan_point.kept, plan_point.kept},
             {plan_point.checkpointed, plan_point.checkpointed}, {plan_point.way, plan_point.way})
      .memory;
}

std::int64_t PredictedCost::needed_at_least(const Box& box) {
  const PlanPoint plan_point = smallest_of(box);
  const simulator::Outcome& live = outcome(plan_point, Detail::Live);
  if (is_tight_) return (live.allocated_lower_bound - (box.is_point() ? Bytes(0) : slack_of(box))).count();
  if (decisive_ && !above_sums_.contains(box.family)) {
    const Bytes of_boxes = search_traits(base_).has_law_of_pools ? live.pools_lower_bound : live.device_lower_bound;
    const std::int64_t more = with_margin(of_boxes, plan_point).count() - smallest_sums(box);
    above_sums_.emplace(box.family, more);
    most_above_sums_ = std::max(most_above_sums_.value_or(more), more);
  }
  const Bytes least = box.is_point() ? live.own_lower_bound : least_of_box(box, live);
  return with_margin(least, plan_point).count();
}

Bytes PredictedCost::least_of_box(const Box& box, const simulator::Outcome& smallest) {
  const Bytes least = smallest.device_lower_bound - slack_of(box);
  if (!search_traits(base_).has_law_of_pools) return least;
  const Bytes slack(lower_bounds_.pool_slack(families_.families[box.family], box.ranges[0].size() > 1,
                                             box.ranges[1].size() > 1, box.ranges[2]));
  return std::max(least, smallest.pools_lower_bound - slack);
}

Bytes PredictedCost::slack_of(const Box& box) {
  return Bytes(lower_bounds_.live_slack(families_.families[box.family], box.ranges[0].size() > 1,
                                        box.ranges[1].size() > 1, box.ranges[2]));
}

std::string SmallestCost::level_name(int level) const {
  constexpr CostLevel kLevels[] = {CostLevel::Sums, CostLevel::Live, CostLevel::Memory};
  return cost_.level_name(static_cast<int>(kLevels[level]));
}

Bound SmallestCost::bound(const Box& box, int level) {
  if (level == 0) return {0, cost_.bound(box, static_cast<int>(CostLevel::Sums)).memory};
  if (level == num_levels() - 1) {
    ++num_predicted_;
    const std::int64_t needed = PredictedCost::needed_bytes(cost_.memory_up_to(cost_.plan_point_of(box), enough_));
    const bool is_less = !smallest_ || needed < smallest_->cost.memory;
    // A partial prediction counts as more than `enough_`, which is not below the least so far.
    if (is_less || (needed == smallest_->cost.memory && comes_before(box, smallest_->point))) {
      smallest_ = EvaluatedPoint{box, {0, needed}};
    }
    return {0, needed};
  }
  ++num_walked_;
  return {0, cost_.needed_at_least(box)};
}

std::vector<Box> SmallestCost::corners(std::size_t most) const {
  std::vector<std::pair<std::int64_t, Box>> all;
  for (Box& box : cost_.space()) {
    box.ranges[0].last = box.ranges[0].first;
    box.ranges[1].first = box.ranges[1].last;
    box.ranges[2].last = box.ranges[2].first;
    all.emplace_back(cost_.bound(box, static_cast<int>(CostLevel::Sums)).memory, box);
  }
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), most));
  std::partial_sort(all.begin(), end, all.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : comes_before(a.second, b.second);
  });
  std::vector<Box> corners;
  std::transform(all.begin(), end, std::back_inserter(corners), [](const auto& corner) { return corner.second; });
  return corners;
}

void SmallestCost::probe(Bytes enough) {
  constexpr std::size_t kNumProbes = 6;
  for (const Box& corner : corners(kNumProbes)) {
    if (least() <= enough) return;
    if (Bytes(bound(corner, num_levels() - 2).memory) <= enough) bound(corner, num_levels() - 1);
  }
}

void SmallestCost::probe_by_live_bytes(const std::function<bool()>& should_stop) {
  constexpr std::size_t kNumWalked = 400;
  constexpr std::size_t kNumProbes = 60;
  std::vector<std::pair<std::int64_t, Box>> walked;
  for (const Box& corner : corners(kNumWalked)) walked.emplace_back(bound(corner, num_levels() - 2).memory, corner);
  std::stable_sort(walked.begin(), walked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  walked.resize(std::min(walked.size(), kNumProbes));
  for (const auto& [at_least, corner] : walked) {
    if (Bytes(at_least) >= least() || (should_stop && should_stop())) break;
    if (smallest_) enough_ = most_that_is_as_small();
    probed_.push_back({corner, bound(corner, num_levels() - 1)});
  }
  enough_ = simulator::kWholePrediction;
}

std::vector<EvaluatedPoint> SmallestCost::as_small() const {
  std::vector<EvaluatedPoint> points;
  std::copy_if(probed_.begin(), probed_.end(), std::back_inserter(points),
               [&](const EvaluatedPoint& point) { return Bytes(point.cost.memory) <= most_that_is_as_small(); });
  return points;
}

// One walk rules out a family that is too large as a whole.
Bound LiveCost::bound(const Box& box, int level) {
  if (level == num_levels() - 1) {
    Bound bound = cost_.bound(box, static_cast<int>(CostLevel::Time));
    bound.memory = cost_.needed_at_least(box);
    return bound;
  }
  return cost_.bound(box, level);
}

double PredictedCost::time_in_order(const Box& box) {
  const PlanPoint plan_point = fastest_of(box);
  const auto [known, is_new] = in_order_.try_emplace(point_of(plan_point));
  if (!is_new) return known->second;
  const auto least = lower_bounds_.time_in_order(families_.families[plan_point.family], plan_point);
  known->second = least ? rounded_down(*least) : -std::numeric_limits<double>::infinity();
  return known->second;
}

Bound PredictedCost::bound(const Box& box, int level) {
  const Family& family = families_.families[box.family];
  const PlanPoint fastest = fastest_of(box);
  const PlanPoint smallest = smallest_of(box);
  const double no_time = -std::numeric_limits<double>::infinity();
  const std::int64_t no_memory = std::numeric_limits<std::int64_t>::min();
  switch (static_cast<CostLevel>(level)) {
    case CostLevel::Sums: {
      Bound bound = lower_bounds_.bound(family, {smallest.kept, fastest.kept},
                                        {fastest.checkpointed, smallest.checkpointed}, {smallest.way, fastest.way});
      bound.time = rounded_down(Seconds(bound.time));
      return bound;
    }
    case CostLevel::Order:
      return {time_in_order(box), no_memory};
    case CostLevel::Time: {
      const bool has_parts = families_.wrappings[family.wrapping].parts != BlockParts::Whole;
      const SearchTraits& traits = search_traits(base_);
      const bool may_wait_less =
          has_parts || !(family.cpu_offload ? traits.has_law_of_host_time : traits.has_law_of_time);
      if (may_wait_less && (box.ranges[1].size() > 1 || box.ranges[2].size() > 1)) return {no_time, no_memory};
      // The CPU delays next to nothing, so the bound by the order suffices.
      if (!box.is_point() && lower_bounds_.knows_order(family)) return {no_time, no_memory};
      const Seconds step = outcome(fastest, Detail::Time).step;
      return {box.is_point() ? rounded(step) : rounded_down(step), no_memory};
    }
    case CostLevel::Live:
      if (!may_decide(box)) return {no_time, no_memory};
      return {no_time, needed_at_least(box)};
    case CostLevel::Memory: {
      const Bytes too_large = decisive_ ? Bytes(*decisive_) : simulator::kWholePrediction;
      const simulator::Outcome& exact = outcome_up_to(fastest, enough_, too_large);
      return {rounded(exact.step + exact.flush_time), needed_bytes(exact)};
    }
  }
  return {no_time, no_memory};
}

}  // namespace fsdp::planner
