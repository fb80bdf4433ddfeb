#pragma once

// The findings of PyTorch's auto-wrap policy at each module, as a part of an answer.

#include "planner/space/wrap_policy.h"
#include "text/document.h"

namespace fsdp::planner {

/// The modules that it visited with what came of each, what the root keeps, and what no policy weighs.
void add_policy(Document& document, const PolicyExplanation& explanation);

}  // namespace fsdp::planner
