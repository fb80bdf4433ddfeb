#pragma once

// Choices as people write them, one at a time: "16G", "keep-last:4", "clip_seconds=6". The command line, the fields
// of the window and project files use these texts.

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::render {

/// Reads the texts of a choice into `choices`. The last of several texts counts, except that patterns and sizes may
/// have many. Errors: each text without a meaning, with `place_of`; `choices` is then unchanged.
Result<void> read_choice(planner::PlanChoice choice, std::span<const std::string> texts, planner::PlanChoices& choices);

/// The texts that `read_choice` reads as the same choice; empty if it is not made.
std::vector<std::string> texts_of(planner::PlanChoice choice, const planner::PlanChoices& choices);

}  // namespace fsdp::render
