#pragma once

// The families of plans that a node's host memory can hold. A plan's need of host memory follows from its mesh, units
// and offload. These are fixed in a family.

#include <vector>

#include "planner/search/lower_bounds.h"
#include "planner/space/families.h"

namespace fsdp::planner {

struct HostLimit {
  /// Families with the same need, above the memory of a node.
  struct OverBudget {
    Bytes needed;  ///< Includes the margin.
    Families families;
  };

  Families within;                      ///< All of them, if the memory of a node is unknown.
  std::vector<OverBudget> over_budget;  ///< By rising need.

  std::int64_t num_over_budget() const;
};

/// Splits a space. REQUIRES: every wrapping passes check().
HostLimit split_by_host(const Plan& base, Families families, const PredictorOf& predictor_of);

}  // namespace fsdp::planner
