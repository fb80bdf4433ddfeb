#pragma once

// Which GPUs have more memory, as the choices that name them.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "planner/plan_choices.h"
#include "planner/remedies.h"

namespace fsdp::planner {

/// The machines of the library with as many GPUs and more memory on each, those with the least first: other cards, with
/// their own speed and links, by their names; shipped clusters where a cluster is named. Where only memory is given,
/// too, a card is named: more memory by itself would be another card in silence. `choices` are the choices made and
/// `now` their machines; `of_plan` says that they come from a plan file, which choices then replace. Empty where the
/// library cannot be read.
std::vector<LargerGpu> larger_gpus(const PlanChoices& choices, const Cluster& now, bool of_plan,
                                   const std::string& library);

/// Whether a GPU stands in for one that nobody named.
bool is_stand_in(const Gpu& gpu);
/// The card whose speed and links a GPU has: "L4" of "L4 with 16.0 GiB".
std::string card_of(const Gpu& gpu);

}  // namespace fsdp::planner
