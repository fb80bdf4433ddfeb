#pragma once

// Which GPUs have more memory, as the choices that name them.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "planner/plan_choices.h"
#include "planner/remedies.h"

namespace fsdp::planner {

/// The machines of the library with as many GPUs and more memory on each, those with the least first: other cards where
/// a card is named, with their own speed and links; shipped clusters where a cluster is named; the memory of other
/// cards where only memory is given, on the card that then stands in. `choices` are the choices made and `now` their
/// machines; `of_plan` says that they come from a plan file, which choices then replace. Empty where the library cannot
/// be read.
std::vector<LargerGpu> larger_gpus(const PlanChoices& choices, const Cluster& now, bool of_plan,
                                   const std::string& library);

/// Whether a GPU stands in for one that nobody named.
bool is_stand_in(const Gpu& gpu);

}  // namespace fsdp::planner
