#include "render/choice_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/split.h"
#include "planner/space/choice_table.h"

namespace fsdp::render {

namespace {

/// The option in a word, "--gpus" or "--gpus=4"; null if there is none.
const planner::ChoiceRow* option_of_word(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (const planner::ChoiceRow& option : planner::kChoiceRows) {
    const std::vector<std::string_view> names = split(option.names, ',');
    if (std::find(names.begin(), names.end(), name) != names.end()) return &option;
  }
  const std::optional<planner::PlanChoice> former = planner::choice_of_place(name);
  return former ? &row_of(*former) : nullptr;
}

bool begins_option(std::string_view word) {
  return word.starts_with("--") && word.size() > 2;
}

}  // namespace

Result<ChoiceWords> take_choices(std::span<const std::string> words) {
  ChoiceWords taken;
  Errors errors;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const planner::ChoiceRow* option = option_of_word(words[i]);
    if (option == nullptr) {
      taken.rest.push_back(words[i]);
      continue;
    }
    const std::string place(place_of(option->choice));
    std::vector<std::string>& texts = taken.texts[option->choice];
    if (!texts.empty() && !option->rules.repeatable) errors.push_back({place, "Given several times.", "Give it once."});
    if (const std::size_t equals = words[i].find('='); equals != std::string::npos) {
      texts.push_back(words[i].substr(equals + 1));
    } else if (i + 1 < words.size() && !begins_option(words[i + 1])) {
      texts.push_back(words[++i]);
    } else {
      errors.push_back({place, "The value is missing.", fmt::format("Write {} {}.", place, option->word)});
    }
    while (option->rules.many && i + 1 < words.size() && !begins_option(words[i + 1])) texts.push_back(words[++i]);
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return taken;
}

}  // namespace fsdp::render
