#pragma once

// The findings of PyTorch's auto-wrap policy at each module, as a part of an answer.

#include "planner/space/wrap_policy.h"
#include "text/document.h"

namespace fsdp::planner {

/// The visited modules with the policy's finding, the parameters left in the root, and those that no policy counts.
void add_policy(Document& document, const PolicyExplanation& explanation);

}  // namespace fsdp::planner
