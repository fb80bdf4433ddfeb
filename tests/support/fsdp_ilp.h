#pragma once

// PyTorch's own planner of FSDP units, searched exactly.
//
// torch.distributed._tools.fsdp_ilp chooses which modules become FSDP units so that the exposed communication is least
// and a simple estimate of the peak stays within a budget. It leaves the search to a mixed-integer solver that may stop
// within 5 % of the optimum. Here the same cost model is searched by planner/search/branch_and_bound.h, to the end. It
// is kept as a check from outside: the search must find what that planner's own tests expect.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "planner/search/branch_and_bound.h"

namespace fsdp::planner {

/// What that planner knows of a module; totals are taken when the module runs.
struct IlpModule {
  std::string name;
  int parent = -1;             ///< In `IlpProblem::modules`, which is in pre-order; -1 for the root.
  Bytes parameters;            ///< Bytes of the whole subtree.
  Bytes gradients;             ///< Bytes of the whole subtree.
  Bytes total_activations;     ///< Alive when its backward starts.
  Bytes total_gradients;       ///< Already made when its backward starts.
  Bytes activation_gradients;  ///< Bytes of its own.
  Seconds forward{0};
  Seconds backward{0};
};

/// A collective of p bytes takes latency + p / bandwidth.
struct IlpCollective {
  Seconds latency{0};
  BytesPerSecond bandwidth;
};

struct IlpProblem {
  std::vector<IlpModule> modules;  ///< In pre-order, the root first.
  std::int64_t world_size = 1;
  IlpCollective all_gather;
  IlpCollective reduce_scatter;
  Bytes budget;
  std::optional<std::vector<std::string>> units;  ///< When given, exactly these and the root.
};

struct IlpCost {
  Seconds exposed{0};  ///< Communication that no compute hides.
  Bytes peak;

  bool operator==(const IlpCost&) const = default;
};

struct IlpSolution {
  std::optional<std::vector<std::string>> units;  ///< Besides the root, in pre-order; empty: nothing fits.
  IlpCost cost;
  LevelCounts counts;
};

/// The cost of a set of units [in `modules`, without the root]. REQUIRES: no unit inside another, ascending.
IlpCost ilp_cost(const IlpProblem& problem, const std::vector<int>& units);

/// The units with the least exposed communication within the budget; of equals the first in the order of the space:
/// for the children of the root from the first to the last, first no unit, then the child itself, then units inside it.
/// Errors: modules that are not in pre-order, unknown or nested unit names, more than kMaxCoordinates children of the
/// root.
Result<IlpSolution> solve_ilp(const IlpProblem& problem);

/// The sets of units without nesting that the problem admits: what solve_ilp searches.
std::vector<std::vector<int>> ilp_unit_sets(const IlpProblem& problem, int module);

}  // namespace fsdp::planner
