#pragma once

// The findings of PyTorch's auto-wrap policy at each module, as a part of an answer.

#include "planner/space/wrap_policy.h"
#include "text/document.h"

namespace fsdp::render {

/// The visited modules with the policy's finding, the parameters left in the root, and those that no policy counts.
void add_policy(text::Document& document, const planner::PolicyExplanation& explanation);

}  // namespace fsdp::render
