#pragma once

// The search with explanations of its plan: the report, the plans beside it, and suggestions.

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/search.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// Errors: stopped, those of the spec, the workload and the fixed choices, and those of check_rank. "No plan fits" is a
/// result, not an error.
Result<SearchResult> search(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                            const SearchOptions& options = {});

}  // namespace fsdp::planner
