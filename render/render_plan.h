#pragma once

// A plan in a few sentences.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "planner/space/plan_sentence.h"

namespace fsdp::planner {

/// The sentence of planner/space/plan_sentence.h, then its items by name: the mesh and the units, the sizes of the
/// workload, the checkpointed blocks, the saved numbers. One line each.
std::vector<std::string> describe(const Plan& plan, const ModelFacts& facts, const std::string& batch_origin);

}  // namespace fsdp::planner
