#pragma once

// The best plan that a trainer's configuration can express, and the cost of its limits.

#include "core/base/result.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// Like search(), over the plans that `release` can express exactly; a note compares it with the best plan of the whole
/// space. Suggestions are those that it can express, too, each the plan with one change. Errors: those of search(), and
/// requested choices without a near equivalent.
Result<SearchResult> search_for(const TrainerRelease& release, const ResolvedRequest& request,
                                const SearchOptions& options = {});

}  // namespace fsdp::planner
