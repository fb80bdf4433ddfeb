#pragma once

// The choices of a plan in a command line. The command and the window read the same options.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The choices of a plan from options: the texts of each choice that is made.
using ChoiceTexts = std::map<PlanChoice, std::vector<std::string>>;

struct ChoiceWords {
  ChoiceTexts texts;
  std::vector<std::string> rest;  ///< The other words, in their order.
};

/// Takes the options of a plan out of the words of a command line. Errors: an option without its value, and one that is
/// given twice and counts once.
Result<ChoiceWords> take_choices(std::span<const std::string> words);

}  // namespace fsdp::planner
