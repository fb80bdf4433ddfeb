#pragma once

// Choices as the words of a command that makes them, for suggestions and for the window's copy action.

#include <string>
#include <vector>

#include "planner/space/plan_choices.h"

namespace fsdp::render {

/// The words that make these choices: {"--gpu", "H100 SXM", "--gpus", "8"}. The machine comes before its number; an
/// option that takes all following words comes last.
std::vector<std::string> command_words(const planner::PlanChoices& choices);

/// The same as one text to type, with each name as one word: "--gpu H100-SXM --gpus 8".
std::string flags_of(planner::PlanChoices choices);

}  // namespace fsdp::render
