#pragma once

// All controls, by group, on one scrolling page.

#include <QButtonGroup>
#include <QRadioButton>
#include <QScrollArea>
#include <QVBoxLayout>
#include <map>
#include <string>

#include "core/cluster/cluster_library.h"
#include "core/spec/model_spec.h"
#include "gui/panels/control.h"
#include "gui/state/app_state.h"

namespace fsdp::gui {

class ControlPanel : public QScrollArea {
  Q_OBJECT

 public:
  explicit ControlPanel(AppState& state, QWidget* parent = nullptr);

  /// The control of a choice; null if it has none.
  Control* control(planner::PlanChoice choice) const;
  /// The objective of the search.
  Control& objective() const { return *objective_; }
  /// The label of the field with the error, by the place of the error. Empty if it is in no field.
  QString label_of(const std::string& place) const;

 private:
  void add_group(const QString& title);
  void add_control(const ControlInfo& info);
  void add_choice_of_plan();
  void set_objective(const QString& name);
  void edit(planner::PlanChoice choice, const QString& written, int gesture);
  /// The kept plan with the text of one choice applied. Errors: those of the text, and of the choice.
  Result<Plan> edited_plan(planner::PlanChoice choice, const std::string& value) const;
  /// The full name of the GPU or cluster that the command would choose for this text; the text itself if none matches.
  std::string resolved(planner::PlanChoice choice, const std::string& value) const;
  void show_state();
  void show_problems();
  void read_model();
  void rebuild_dimensions();

  AppState& state_;
  QVBoxLayout* column_ = nullptr;
  QVBoxLayout* group_ = nullptr;
  QVBoxLayout* dimensions_ = nullptr;
  QRadioButton* searched_ = nullptr;
  QRadioButton* kept_ = nullptr;
  Control* objective_ = nullptr;
  std::map<planner::PlanChoice, Control*> controls_;
  std::map<std::string, Control*> sizes_;
  std::string model_;  ///< The model whose recipes and dimensions are shown.
  ModelSpec spec_;
  ClusterLibrary machines_;
};

}  // namespace fsdp::gui
