#include "render/choice_words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "render/choice_text.h"

namespace fsdp::render {

namespace {

bool takes_all_that_follow(planner::PlanChoice choice) {
  return choice == planner::PlanChoice::Trainable || choice == planner::PlanChoice::Freeze;
}

/// A cluster or a GPU decides the defaults of the numbers, so it comes before them.
constexpr std::array kSaidFirst = {planner::PlanChoice::ClusterFile, planner::PlanChoice::GpuName,
                                   planner::PlanChoice::Memory};

std::vector<planner::PlanChoice> in_order_of_words() {
  std::vector<planner::PlanChoice> order(kSaidFirst.begin(), kSaidFirst.end());
  for (const planner::PlanChoice choice : planner::plan_choices()) {
    if (std::find(kSaidFirst.begin(), kSaidFirst.end(), choice) == kSaidFirst.end()) order.push_back(choice);
  }
  std::stable_partition(order.begin(), order.end(),
                        [](planner::PlanChoice choice) { return !takes_all_that_follow(choice); });
  return order;
}

}  // namespace

std::vector<std::string> command_words(const planner::PlanChoices& choices) {
  static const std::vector<planner::PlanChoice> order = in_order_of_words();
  std::vector<std::string> words;
  for (const planner::PlanChoice choice : order) {
    const std::vector<std::string> texts = texts_of(choice, choices);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i == 0 || !takes_all_that_follow(choice)) words.emplace_back(place_of(choice));
      words.push_back(texts[i]);
    }
  }
  return words;
}

std::string flags_of(planner::PlanChoices choices) {
  for (std::optional<std::string>* name : {&choices.gpu_name, &choices.cluster_file}) {
    if (*name) std::replace((*name)->begin(), (*name)->end(), ' ', '-');
  }
  return fmt::format("{}", fmt::join(command_words(choices), " "));
}

}  // namespace fsdp::render
