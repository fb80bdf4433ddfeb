#pragma once

// Which families of plans a node's own memory can hold. What a plan keeps there follows from its mesh, its units and
// its offload, which a family has in common, and not from what is free inside a family.

#include <vector>

#include "planner/search/lower_bounds.h"
#include "planner/space/choice.h"

namespace fsdp::planner {

struct HostLimit {
  /// Families that need the same, more than a node has.
  struct Beyond {
    Bytes needed;  ///< Margin included.
    Families families;
  };

  Families within;             ///< All of them, where the memory of a node is not known.
  std::vector<Beyond> beyond;  ///< By rising need.

  std::int64_t num_beyond() const;
};

/// Splits a space. REQUIRES: every wrapping passes check().
HostLimit split_by_host(const Plan& base, Families families, const PredictorOf& predictor_of);

}  // namespace fsdp::planner
