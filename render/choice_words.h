#pragma once

// Choices as the words of a command that makes them: what suggestions print, and what the window copies.

#include <string>
#include <vector>

#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The words that make these choices: {"--gpu", "H100 SXM", "--gpus", "8"}. Which machine comes before how many; what
/// takes all words that follow comes last.
std::vector<std::string> words_of(const PlanChoices& choices);

/// The same as one text to type, where a name is one word: "--gpu H100-SXM --gpus 8".
std::string flags_of(PlanChoices choices);

}  // namespace fsdp::planner
