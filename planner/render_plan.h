#pragma once

// A plan in a few sentences.

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan.h"

namespace fsdp::planner {

/// "1,234,567"
std::string grouped(std::int64_t number);

/// "1 unit", "1,234 units", "2 batches".
std::string counted(std::int64_t count, std::string_view noun);

/// The strategy in the names of FSDP1 and FSDP2; the units; the batch; checkpointing, offload and prefetch; precision
/// and optimizer. One sentence each.
std::vector<std::string> describe(const Plan& plan);

}  // namespace fsdp::planner
