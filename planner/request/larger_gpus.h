#pragma once

// GPUs with more memory, as the choices that name them.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "planner/advice/remedies.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The machines of the library with as many GPUs and more memory on each, those with the least first: other cards, with
/// their own speed and links, by name; shipped clusters if a cluster is named. If only memory is given, we also name a
/// card: more memory alone would be another card, unnoticed. `choices` are the user's choices and `now` their machines;
/// `of_plan` is true if they come from a plan file, whose choices these then replace. Empty if the library cannot be
/// read.
std::vector<LargerGpu> larger_gpus(const PlanChoices& choices, const Cluster& now, bool of_plan,
                                   const std::string& library);

}  // namespace fsdp::planner
