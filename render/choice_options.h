#pragma once

// The choices of a plan in a command line. The command and the window read the same options.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::render {

/// The choices of a plan from options: the texts of each choice that is made.
using ChoiceTexts = std::map<planner::PlanChoice, std::vector<std::string>>;

struct ChoiceWords {
  ChoiceTexts texts;
  std::vector<std::string> rest;  ///< The other words, in order.
};

/// Takes the plan options out of the words of a command line. Errors: an option without its value; an option that
/// counts once and is given twice.
Result<ChoiceWords> take_choices(std::span<const std::string> words);

}  // namespace fsdp::render
