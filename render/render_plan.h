#pragma once

// A plan in a few sentences.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "planner/space/plan_sentence.h"

namespace fsdp::render {

/// The sentence of planner/space/plan_sentence.h, then its items by name: the mesh and the units, the sizes of the
/// workload, the checkpointed blocks, the saved numbers. One line each.
std::vector<std::string> describe(const Plan& plan, const planner::ModelFacts& facts, const std::string& batch_origin);

}  // namespace fsdp::render
