// The cost model of torch.distributed._tools.fsdp_ilp and its space.
//
// A plan is a set of modules, none inside another; the root is always a unit and owns what no other unit owns. With p
// and g the bytes of parameters and gradients of a unit, N ranks, and sums over the units that are the module or above
// it:
//
//   m(i)  = (P + total_gradients(i)) / N + sum (p + g) + total_activations(i) + activation_gradients(i)
//   peak  = max m(i) + 2 max p
//
// In forward a unit hides the gather of the next unit, in backward the gather of the one before and the reduction of
// the one after it (units in pre-order, the root last in backward). What is not hidden is exposed:
//
//   exposed = sum max(0, gather(next) - forward) + sum max(0, gather(previous) + reduce(next) - backward)
//           + gather(root) + gather(first) + reduce(root) + reduce(first)
//
// The search fixes the children of the root one after the other. A box in which the first d children are decided is
// bounded by what these d already expose, and by the memory that remains when each open child takes as much as it can
// from the root.
//
// Sources: torch/distributed/_tools/fsdp_ilp.py and test/distributed/_tools/test_fsdp_ilp.py of PyTorch, commits
// 79f1d16a and 7af2aca3 (never part of a release).
//
// Not modeled there, hence not here: optimizer states, the factor (N-1)/N of collectives, HSDP, offload, whether a
// unit is freed after forward, activation checkpointing.

#include "tests/support/fsdp_ilp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace fsdp::planner {

namespace {

using UnitSets = std::vector<std::vector<int>>;

Seconds time_of(const IlpCollective& collective, Bytes bytes) {
  return collective.latency + bytes / collective.bandwidth;
}

std::vector<int> children_of(const IlpProblem& problem, int module) {
  std::vector<int> children;
  for (int i = module + 1; i < static_cast<int>(problem.modules.size()); ++i) {
    if (problem.modules[i].parent == module) children.push_back(i);
  }
  return children;
}

const IlpModule& at(const IlpProblem& problem, int module) {
  return problem.modules[module];
}

bool is_inside(const IlpProblem& problem, int module, int ancestor) {
  for (int i = module; i >= 0; i = at(problem, i).parent) {
    if (i == ancestor) return true;
  }
  return false;
}

/// What a row of units in pre-order exposes, but for the ends: the root, the first gather and the last reduction.
Seconds exposed_between(const IlpProblem& problem, const std::vector<int>& units) {
  Seconds exposed{0};
  for (std::size_t i = 0; i < units.size(); ++i) {
    const IlpModule& unit = at(problem, units[i]);
    if (i + 1 < units.size()) {
      const Seconds next = time_of(problem.all_gather, at(problem, units[i + 1]).parameters);
      exposed += std::max(Seconds{0}, next - unit.forward);
    }
    Seconds in_backward{0};
    if (i > 0) in_backward += time_of(problem.all_gather, at(problem, units[i - 1]).parameters);
    if (i + 1 < units.size()) in_backward += time_of(problem.reduce_scatter, at(problem, units[i + 1]).gradients);
    exposed += std::max(Seconds{0}, in_backward - unit.backward);
  }
  return exposed;
}

struct RootShare {
  Bytes parameters;
  Bytes gradients;
};

/// The peak with the given units, the root's share and gathers of `largest` bytes. Modules of `open` children count
/// with the root alone: whatever is decided there later can only add.
Bytes peak_of(const IlpProblem& problem, const std::vector<int>& units, RootShare root) {
  const double ranks = static_cast<double>(problem.world_size);
  Bytes largest = root.parameters;
  for (const int unit : units) largest = std::max(largest, at(problem, unit).parameters);
  double highest = 0;
  for (int i = 0; i < static_cast<int>(problem.modules.size()); ++i) {
    const IlpModule& module = at(problem, i);
    const Bytes sharded = at(problem, 0).parameters + module.total_gradients;
    Bytes whole = root.parameters + root.gradients + module.total_activations + module.activation_gradients;
    for (const int unit : units) {
      if (is_inside(problem, i, unit)) whole += at(problem, unit).parameters + at(problem, unit).gradients;
    }
    highest = std::max(highest, static_cast<double>(sharded.count()) / ranks + static_cast<double>(whole.count()));
  }
  return Bytes(std::llround(highest)) + 2 * largest;
}

RootShare root_share(const IlpProblem& problem, const std::vector<int>& units) {
  RootShare share{at(problem, 0).parameters, at(problem, 0).gradients};
  for (const int unit : units) {
    share.parameters -= at(problem, unit).parameters;
    share.gradients -= at(problem, unit).gradients;
  }
  return share;
}

/// The space of a problem as the search sees it: one coordinate for each child of the root.
class IlpCostModel : public CostModel {
 public:
  explicit IlpCostModel(const IlpProblem& problem) : problem_(problem) {
    for (const int child : children_of(problem, 0)) {
      children_.push_back(child);
      choices_.push_back(allowed_sets(child));
    }
  }

  bool is_empty() const {
    return std::any_of(choices_.begin(), choices_.end(), [](const UnitSets& sets) { return sets.empty(); });
  }

  std::vector<Box> space() const override {
    Box box;
    box.num_coordinates = static_cast<std::int32_t>(choices_.size());
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      box.ranges[i] = {0, static_cast<std::int32_t>(choices_[i].size()) - 1};
    }
    return {box};
  }

  int num_levels() const override { return 2; }
  std::string level_name(int level) const override { return level == 0 ? "bound" : "cost"; }

  int split_coordinate(const Box& box) const override {
    int coordinate = 0;
    while (box.ranges[coordinate].size() == 1) ++coordinate;
    return coordinate;
  }

  Bound bound(const Box& box, int level) override {
    if (level == 1) {
      const IlpCost cost = ilp_cost(problem_, units_of(box));
      return {cost.exposed.count(), cost.peak.count()};
    }
    return partial_bound(box);
  }

  /// The units of the children that are decided, before the first one that is open.
  std::vector<int> units_of(const Box& box) const {
    std::vector<int> units;
    for (std::size_t i = 0; i < choices_.size() && box.ranges[i].size() == 1; ++i) {
      const std::vector<int>& chosen = choices_[i][box.ranges[i].first];
      units.insert(units.end(), chosen.begin(), chosen.end());
    }
    return units;
  }

 private:
  UnitSets allowed_sets(int child) const {
    UnitSets sets = ilp_unit_sets(problem_, child);
    if (!problem_.units) return sets;
    std::vector<int> wanted;
    for (int i = 0; i < static_cast<int>(problem_.modules.size()); ++i) {
      const auto& names = *problem_.units;
      if (is_inside(problem_, i, child) && std::find(names.begin(), names.end(), at(problem_, i).name) != names.end()) {
        wanted.push_back(i);
      }
    }
    std::erase_if(sets, [&](const std::vector<int>& set) { return set != wanted; });
    return sets;
  }

  Bound partial_bound(const Box& box) const {
    const std::vector<int> units = units_of(box);
    std::size_t num_decided = 0;
    while (num_decided < choices_.size() && box.ranges[num_decided].size() == 1) ++num_decided;
    RootShare root = root_share(problem_, units);
    for (std::size_t i = num_decided; i < children_.size(); ++i) {
      root.parameters -= at(problem_, children_[i]).parameters;
      root.gradients -= at(problem_, children_[i]).gradients;
    }
    // The last decided unit may still get a neighbor, which can only expose more: its own part is left out.
    Seconds exposed{0};
    if (!units.empty()) exposed = exposed_between(problem_, units);
    exposed += time_of(problem_.all_gather, root.parameters) + time_of(problem_.reduce_scatter, root.gradients);
    if (!units.empty()) {
      exposed += time_of(problem_.all_gather, at(problem_, units.front()).parameters) +
                 time_of(problem_.reduce_scatter, at(problem_, units.front()).gradients);
    }
    // Sums in another order differ in the last digits.
    return {exposed.count() * (1 - 1e-12), peak_of(problem_, units, root).count() - 1};
  }

  const IlpProblem& problem_;
  std::vector<int> children_;
  std::vector<UnitSets> choices_;  ///< [children of the root]
};

Errors check_problem(const IlpProblem& problem) {
  Errors errors;
  for (std::size_t i = 0; i < problem.modules.size(); ++i) {
    const int parent = problem.modules[i].parent;
    if (i == 0 ? parent != -1 : (parent < 0 || parent >= static_cast<int>(i))) {
      errors.push_back({problem.modules[i].name, "does not stand after its parent.", "Give the modules in pre-order."});
    }
  }
  if (problem.modules.empty()) errors.push_back({"modules", "there is none.", "Give at least the root."});
  if (problem.world_size < 1) errors.push_back({"world size", "is not positive.", "Give the number of ranks."});
  if (!errors.empty()) return errors;
  const std::size_t num_children = children_of(problem, 0).size();
  if (num_children > static_cast<std::size_t>(kMaxCoordinates)) {
    errors.push_back({problem.modules[0].name, fmt::format("has {} children.", num_children),
                      fmt::format("At most {} can be searched.", kMaxCoordinates)});
  }
  if (!problem.units) return errors;
  for (const std::string& name : *problem.units) {
    const bool is_known = std::any_of(problem.modules.begin() + 1, problem.modules.end(),
                                      [&](const IlpModule& module) { return module.name == name; });
    if (!is_known) errors.push_back({name, "is not a module below the root.", "Name one of the modules."});
  }
  return errors;
}

}  // namespace

UnitSets ilp_unit_sets(const IlpProblem& problem, int module) {
  // None; the module itself; or any mixture of sets from its children.
  UnitSets mixtures = {{}};
  for (const int child : children_of(problem, module)) {
    const UnitSets of_child = ilp_unit_sets(problem, child);
    UnitSets longer;
    for (const std::vector<int>& mixture : mixtures) {
      for (const std::vector<int>& set : of_child) {
        longer.push_back(mixture);
        longer.back().insert(longer.back().end(), set.begin(), set.end());
      }
    }
    mixtures = std::move(longer);
  }
  mixtures.insert(mixtures.begin() + 1, {module});
  return mixtures;
}

IlpCost ilp_cost(const IlpProblem& problem, const std::vector<int>& units) {
  const RootShare root = root_share(problem, units);
  Seconds exposed = exposed_between(problem, units);
  exposed += time_of(problem.all_gather, root.parameters) + time_of(problem.reduce_scatter, root.gradients);
  if (!units.empty()) {
    exposed += time_of(problem.all_gather, at(problem, units.front()).parameters) +
               time_of(problem.reduce_scatter, at(problem, units.front()).gradients);
  }
  return {exposed, peak_of(problem, units, root)};
}

Result<IlpSolution> solve_ilp(const IlpProblem& problem) {
  if (Errors errors = check_problem(problem); !errors.empty()) return tl::unexpected(std::move(errors));
  IlpCostModel model(problem);
  if (model.is_empty()) {
    return failure("units", "one of them lies inside another.", "This cost model knows no nested units.");
  }
  BranchAndBound search(model, Objective::Time);
  const auto found = search.next(problem.budget.count());
  IlpSolution solution;
  solution.counts = search.counts();
  if (!found) return solution;
  const std::vector<int> units = model.units_of(found->point);
  solution.cost = ilp_cost(problem, units);
  solution.units.emplace();
  for (const int unit : units) solution.units->push_back(at(problem, unit).name);
  return solution;
}

}  // namespace fsdp::planner
