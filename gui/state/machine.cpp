#include "gui/state/machine.h"

#include <optional>
#include <utility>

#include "planner/request/plan_machines.h"
#include "render/choice_text.h"

namespace fsdp::gui {

using planner::PlanChoice;

namespace {

/// The stand-in card; nullopt if a card is named, or if a kept plan has its own.
std::optional<std::string> stand_in_of(const Inputs& inputs, const ClusterLibrary& library) {
  if (inputs.kept && inputs.kept->cluster) return std::nullopt;
  const Result<Cluster> machines = planner::resolve_machines(inputs.choices, library);
  if (!machines || !is_stand_in(machines->gpu)) return std::nullopt;
  return card_of(machines->gpu);
}

}  // namespace

QStringList machine_of(const Inputs& inputs) {
  QStringList options;
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!is_about_machines(choice)) continue;
    for (const std::string& text : render::texts_of(choice, inputs.choices)) {
      options << QString::fromStdString(std::string(place_of(choice)) + "=" + text);
    }
  }
  return options;
}

Inputs on_machine(Inputs inputs, const QStringList& options) {
  std::vector<std::string> words;
  for (const QString& option : options) words.push_back(option.toStdString());
  const Result<render::ChoiceWords> taken = render::take_choices(words);
  if (!taken) return inputs;
  for (const auto& [choice, texts] : taken->texts) {
    if (!is_about_machines(choice)) continue;
    if (Result<Inputs> changed = with_text(inputs, choice, texts.back())) inputs = *std::move(changed);
  }
  return inputs;
}

Inputs with_memory(Inputs inputs, const std::string& text, const ClusterLibrary& library) {
  const std::optional<std::string> card = stand_in_of(inputs, library);
  Inputs changed = with_typed(inputs, PlanChoice::Memory, text);
  const bool is_other = changed.choices.memory != inputs.choices.memory;
  if (card && is_other && !changed.unread.contains(PlanChoice::GpuName)) changed.choices.gpu_name = *card;
  return changed;
}

}  // namespace fsdp::gui
