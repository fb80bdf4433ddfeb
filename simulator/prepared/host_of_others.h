#pragma once

// Host memory of a plan with the models beside the trained one.

#include <optional>

#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// host_memory() of the plan, with the other models' shards, and with a model that is made on the host if nothing later
/// needs as much. nullopt if nothing of any model is there.
std::optional<HostMemory> host_memory_with_others(const PreparedPlan& prepared, Bytes inputs);

/// Adds the other models to the host memory of a phase. `is_made`: they are made in it.
void add_others_to_host(const PreparedPlan& prepared, bool is_made, HostMemory& host);

}  // namespace fsdp::simulator
