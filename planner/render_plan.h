#pragma once

// A plan in a few sentences.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "planner/plan_sentence.h"

namespace fsdp::planner {

/// Between the parts of a line.
inline constexpr std::string_view kDot = " · ";

/// "42 %" of 0.42.
std::string percent(double share);

/// "1,234,567"
std::string grouped(std::int64_t number);

/// "1 unit", "1,234 units", "2 batches".
std::string counted(std::int64_t count, std::string_view noun);

/// The sentence of planner/plan_sentence.h; then what it counts, by name: the mesh and the units, the sizes of the
/// workload, the checkpointed blocks, the numbers that are kept. One line each.
std::vector<std::string> describe(const Plan& plan, const ModelFacts& facts, const std::string& batch_origin);

}  // namespace fsdp::planner
