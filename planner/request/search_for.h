#pragma once

// The best plan that a trainer's configuration can say, and what the freedom that it gives up would have brought.

#include "core/base/result.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// As search(), of the plans that `release` says exactly; a note compares it with the best plan of the whole space.
/// Suggestions are those that it says as well, each the plan with one change. Errors: those of search(), and what of
/// the request the trainer has nothing near to.
Result<SearchResult> search_for(const TrainerRelease& release, const ResolvedRequest& request,
                                const SearchOptions& options = {});

}  // namespace fsdp::planner
