#include "gui/panels/control_panel.h"

#include <QGroupBox>
#include <QLabel>
#include <algorithm>

#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "gui/state/machine.h"
#include "gui/state/plan_edit.h"
#include "planner/search/objective.h"
#include "planner/space/choice_table.h"
#include "render/choice_text.h"

namespace fsdp::gui {

using planner::PlanChoice;

namespace {

QString text(std::string_view view) {
  return QString::fromUtf8(view.data(), static_cast<qsizetype>(view.size()));
}

bool is_plain_number(const std::string& written) {
  return !written.empty() && written.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

ControlPanel::ControlPanel(AppState& state, QWidget* parent) : QScrollArea(parent), state_(state) {
  setObjectName("controls");
  setAccessibleName(tr("Controls"));
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  auto* page = new QWidget(this);
  column_ = new QVBoxLayout(page);
  column_->setContentsMargins(8, 8, 8, 8);
  column_->setSpacing(10);
  if (auto library = read_cluster_library(state.library() + "/clusters")) machines_ = *std::move(library);
  std::string_view group;
  for (const ControlInfo& info : control_infos()) {
    if (info.group != group) {
      group = info.group;
      add_group(text(group));
      if (info.choice == PlanChoice::Runtime) add_choice_of_plan();
    }
    add_control(info);
    if (info.choice == PlanChoice::Sequence) {
      dimensions_ = new QVBoxLayout;
      dimensions_->setSpacing(4);
      group_->addLayout(dimensions_);
    }
  }
  column_->addStretch(1);
  setWidget(page);
  page->setMinimumWidth(345);
  setMinimumWidth(361);
  connect(&state_, &AppState::inputs_changed, this, &ControlPanel::show_state);
  connect(&state_, &AppState::snapshot_changed, this, &ControlPanel::show_state);
  connect(&state_, &AppState::errors_changed, this, &ControlPanel::show_problems);
  show_state();
}

Control* ControlPanel::control(PlanChoice choice) const {
  const auto found = controls_.find(choice);
  return found == controls_.end() ? nullptr : found->second;
}

void ControlPanel::add_group(const QString& title) {
  auto* box = new QGroupBox(title, this);
  group_ = new QVBoxLayout(box);
  group_->setContentsMargins(8, 6, 4, 8);
  group_->setSpacing(4);
  column_->addWidget(box);
}

void ControlPanel::add_choice_of_plan() {
  searched_ = new QRadioButton(tr("Search for the best plan"), this);
  searched_->setObjectName("search_plan");
  searched_->setAccessibleName(searched_->text());
  searched_->setToolTip(tr("Whatever is not set below is searched: the best plan that fits"));
  kept_ = new QRadioButton(tr("Keep the plan that is shown"), this);
  kept_->setObjectName("keep_plan");
  kept_->setAccessibleName(kept_->text());
  kept_->setToolTip(tr("Predict exactly this plan, whatever changes around it; units can be edited"));
  connect(searched_, &QRadioButton::clicked, this, [this] { state_.set_kept(false); });
  connect(kept_, &QRadioButton::clicked, this, [this] { state_.set_kept(true); });
  std::vector<std::string> names;
  for (const auto& each : planner::kSearchObjectives) names.emplace_back(each.name);
  objective_ = new Control(
      ControlKind::Choice, "--objective", tr("Optimize for"),
      tr("The goal of the search: the fastest step, the least memory, or the most samples a second (--objective)"), {},
      names, this);
  connect(objective_, &Control::edited, this, &ControlPanel::set_objective);
  group_->addWidget(searched_);
  group_->addWidget(kept_);
  group_->addWidget(objective_);
}

void ControlPanel::set_objective(const QString& name) {
  Inputs changed = state_.inputs();
  changed.objective = planner::SearchObjective::Time;
  for (const auto& each : planner::kSearchObjectives) {
    if (name == text(each.name)) changed.objective = each.value;
  }
  state_.change(changed, tr("--objective %1").arg(name.isEmpty() ? text(planner::kSearchObjectives[0].name) : name));
}

void ControlPanel::add_control(const ControlInfo& info) {
  std::vector<std::string> choices = info.choices;
  if (info.choice == PlanChoice::GpuName) {
    for (const Gpu& gpu : machines_.gpus) choices.push_back(gpu.name);
  } else if (info.choice == PlanChoice::ClusterFile) {
    for (const Cluster& cluster : machines_.clusters) choices.push_back(cluster.name);
  }
  const QString flag = text(place_of(info.choice));
  const QString help = text(planner::row_of(info.choice).help) + " (" + flag + ")";
  auto* control = new Control(info.kind, flag, text(info.label), help, info.stops, choices, this);
  connect(control, &Control::edited, this,
          [this, choice = info.choice](const QString& value, int gesture) { edit(choice, value, gesture); });
  controls_[info.choice] = control;
  group_->addWidget(control);
}

std::string ControlPanel::resolved(PlanChoice choice, const std::string& value) const {
  if (choice == PlanChoice::GpuName) {
    if (const auto gpu = find_gpu(value, machines_.gpus, "")) return gpu->name;
  } else if (choice == PlanChoice::ClusterFile) {
    if (const auto cluster = find_cluster(value, machines_.clusters, "")) return cluster->name;
  }
  return value;
}

void ControlPanel::edit(PlanChoice choice, const QString& written, int gesture) {
  const std::string value = resolved(choice, written.toStdString());
  const QString place = text(place_of(choice));
  const QString what = value.empty() ? tr("take back %1").arg(place) : tr("%1 %2").arg(place, text(value));
  const Inputs& inputs = state_.inputs();
  if (!inputs.kept || !is_about_plan(choice)) {
    const Inputs changed =
        choice == PlanChoice::Memory ? with_memory(inputs, value, machines_) : with_typed(inputs, choice, value);
    // Other words for the same value: the field shows the usual ones again.
    if (changed == inputs) return show_state();
    state_.change(changed, what, gesture);
  } else if (const Result<Plan> plan = edited_plan(choice, value)) {
    state_.keep_plan(*plan, what);
  } else {
    state_.report_errors(plan.error());
    show_state();
  }
}

Result<Plan> ControlPanel::edited_plan(PlanChoice choice, const std::string& value) const {
  planner::PlanChoices change;
  const Result<void> read = render::read_choice(choice, std::vector{value}, change);
  if (!read) return tl::unexpected(read.error());
  const Plan& plan = state_.inputs().kept->plan;
  const SnapshotPtr shown = state_.snapshot();
  if (!shown || !shown->model) return plan;
  return with_choices(plan, change, *shown->model, shown->cluster);
}

QString ControlPanel::label_of(const std::string& place) const {
  const std::optional<PlanChoice> choice = planner::choice_of_place(place);
  const Control* field = choice ? control(*choice) : nullptr;
  return field == nullptr ? QString() : field->label();
}

void ControlPanel::show_problems() {
  Control* first = nullptr;
  for (const auto& [choice, control] : controls_) {
    QStringList problems;
    for (const Error& error : state_.errors()) {
      if (error.where == place_of(choice)) problems << text(error.what + (error.hint.empty() ? "" : " " + error.hint));
    }
    control->set_problem(problems.join('\n'));
    if (first == nullptr && !problems.isEmpty()) first = control;
  }
  if (first != nullptr) ensureWidgetVisible(first);
}

void ControlPanel::read_model() {
  model_ = state_.inputs().model;
  spec_ = {};
  const auto path = find_model_file(model_, state_.library());
  if (path) {
    if (auto spec = read_model_file(*path)) spec_ = *std::move(spec);
  }
  std::vector<std::string> recipes;
  for (const Recipe& recipe : spec_.recipes) recipes.push_back(recipe.name);
  controls_.at(PlanChoice::Recipe)->set_choices(recipes);
  rebuild_dimensions();
}

void ControlPanel::rebuild_dimensions() {
  for (const auto& [name, control] : sizes_) control->deleteLater();
  sizes_.clear();
  for (const SpecDimension& dimension : spec_.dimensions) {
    if (dimension.name == "batch" || dimension.name == "seq" || !is_plain_number(dimension.value.text)) continue;
    const double usual = QString::fromStdString(dimension.value.text).toDouble();
    std::vector<std::int64_t> stops;
    for (double stop = std::max(1.0, usual / 8); stop <= usual * 8; stop *= 2) {
      stops.push_back(static_cast<std::int64_t>(stop));
    }
    stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
    const QString name = QString::fromStdString(dimension.name);
    QString label = QString(name).replace('_', ' ');
    label[0] = label[0].toUpper();
    auto* control = new Control(ControlKind::Count, "--set " + name, label,
                                tr("A size of this model (--set %1)").arg(name), stops, {}, this);
    connect(control, &Control::edited, this, [this, name](const QString& value, int gesture) {
      const auto changed = with_dimension(state_.inputs(), name.toStdString(), value.toStdString());
      if (!changed) return state_.report_errors(changed.error());
      state_.change(*changed, tr("%1 %2").arg(name, value), gesture);
    });
    sizes_[dimension.name] = control;
    dimensions_->addWidget(control);
  }
}

void ControlPanel::show_state() {
  const Inputs& inputs = state_.inputs();
  if (inputs.model != model_) read_model();
  const SnapshotPtr shown = state_.snapshot();
  const bool is_kept = inputs.kept.has_value();
  searched_->setChecked(!is_kept);
  kept_->setChecked(is_kept);
  kept_->setEnabled(shown != nullptr);
  const bool is_own_objective = inputs.objective != planner::SearchObjective::Time;
  objective_->show_value(text(name_of(planner::kSearchObjectiveTable, inputs.objective)), is_own_objective);
  objective_->set_reset_hint(is_own_objective ? tr("Back to the fastest step") : "");
  objective_->set_reason(is_kept ? tr("The plan is kept: search again to have another one") : "");
  for (const auto& [choice, control] : controls_) {
    const auto own = is_kept && is_about_plan(choice) ? std::nullopt : own_text(choice, inputs);
    const std::string value = own ? *own : shown ? shown_text(choice, *shown) : "";
    control->show_value(QString::fromStdString(value), own.has_value());
    const bool is_search = is_about_plan(choice);
    control->set_reset_hint(!own ? "" : is_search ? tr("Let the search decide") : tr("Back to the default"));
  }
  controls_.at(PlanChoice::GlobalBatch)
      ->set_reason(is_kept ? tr("A kept plan has its own batch: set Micro-batch or Accumulation, or search again")
                           : "");
  // A model without tokens has no sequence.
  const auto has_size = [&](const char* name) {
    return spec_.dimensions.empty() || find_dimension(spec_.dimensions, name) != nullptr;
  };
  controls_.at(PlanChoice::Sequence)->setVisible(has_size("seq"));
  controls_.at(PlanChoice::Batch)->setVisible(has_size("batch"));
  for (const auto& [name, control] : sizes_) {
    const QString own = QString::fromStdString(text_of_dimension(inputs, name).value_or(""));
    control->show_value(own.isEmpty() && shown ? QString::fromStdString(shown_dimension(name, *shown)) : own,
                        !own.isEmpty());
    control->set_reset_hint(own.isEmpty() ? "" : tr("Back to the default"));
  }
}

}  // namespace fsdp::gui
