#pragma once

// Which GPUs have more memory, as the choices that name them.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "planner/advice/remedies.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The machines of the library with as many GPUs and more memory on each, those with the least first: other cards, with
/// their own speed and links, by their names; shipped clusters where a cluster is named. Where only memory is given,
/// too, a card is named: more memory by itself would be another card in silence. `choices` are the choices made and
/// `now` their machines; `of_plan` says that they come from a plan file, which choices then replace. Empty where the
/// library cannot be read.
std::vector<LargerGpu> larger_gpus(const PlanChoices& choices, const Cluster& now, bool of_plan,
                                   const std::string& library);

}  // namespace fsdp::planner
