#pragma once

// The module tree with its search field and the actions on units and blocks.

#include <QAction>
#include <QLineEdit>
#include <QSortFilterProxyModel>
#include <QTreeView>
#include <QWidget>

#include "gui/panels/module_tree_model.h"
#include "gui/state/app_state.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class ModuleTree : public QWidget {
  Q_OBJECT

 public:
  explicit ModuleTree(AppState& state, QWidget* parent = nullptr);
  void set_theme(const Theme& theme);
  /// Opens the tree at a module and selects it.
  void show_module(const QString& name);
  QTreeView& view() { return *view_; }
  ModuleTreeModel& model() { return model_; }
  QLineEdit& search() { return *search_; }

 signals:
  void unit_chosen(QString module);

 private:
  void add_actions();
  void change_plan(const Plan& plan, const QString& text);
  QString current_module() const;
  void show_state();

  AppState& state_;
  ModuleTreeModel model_;
  QSortFilterProxyModel proxy_;
  QLineEdit* search_;
  QTreeView* view_;
  bool was_empty_ = true;
};

}  // namespace fsdp::gui
