#include "gui/state/machine.h"

#include <QObject>

#include "core/base/parse_units.h"
#include "render/choice_text.h"

namespace fsdp::gui {

using planner::PlanChoice;

QStringList machine_of(const Inputs& inputs) {
  QStringList options;
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!is_about_machines(choice)) continue;
    for (const std::string& text : texts_of(choice, inputs.choices)) {
      options << QString::fromStdString(std::string(place_of(choice)) + "=" + text);
    }
  }
  return options;
}

Inputs on_machine(Inputs inputs, const QStringList& options) {
  std::vector<std::string> words;
  for (const QString& option : options) words.push_back(option.toStdString());
  const Result<planner::ChoiceWords> taken = planner::take_choices(words);
  if (!taken) return inputs;
  for (const auto& [choice, texts] : taken->texts) {
    if (!is_about_machines(choice)) continue;
    if (Result<Inputs> changed = with_text(inputs, choice, texts.back())) inputs = *std::move(changed);
  }
  return inputs;
}

QString machine_text(const Inputs& inputs) {
  const planner::PlanChoices& choices = inputs.choices;
  if (choices.cluster_file) return QString::fromStdString(*choices.cluster_file);
  const int gpus = choices.gpus.value_or(1);
  const QString node =
      choices.gpu_name ? QObject::tr("%1x %2").arg(gpus).arg(QString::fromStdString(*choices.gpu_name))
      : choices.memory
          ? QObject::tr("%1 GPUs of %2").arg(gpus).arg(QString::fromStdString(format_bytes(*choices.memory)))
          : QObject::tr("%1 GPUs").arg(gpus);
  const int nodes = choices.nodes.value_or(1);
  return nodes > 1 ? QObject::tr("%1 nodes of %2").arg(nodes).arg(node) : node;
}

}  // namespace fsdp::gui
