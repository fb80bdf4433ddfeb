#pragma once

// Choices as people write them, one at a time: "16G", "keep-last:4", "clip_seconds=6". The command takes these texts,
// the fields of the window show them, and project files hold them.

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// Reads what is written for a choice into `choices`. The last of several texts counts, but for patterns and sizes,
/// which may have many. Errors: each text that says nothing, with `place_of`; `choices` is then as before.
Result<void> read_choice(PlanChoice choice, std::span<const std::string> texts, PlanChoices& choices);

/// The texts that `read_choice` reads as the same choice; empty where it is not decided.
std::vector<std::string> texts_of(PlanChoice choice, const PlanChoices& choices);

}  // namespace fsdp::planner
