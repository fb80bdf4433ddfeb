#pragma once

// The modules of a model as a tree: the contents of each, and its FSDP unit. A checkbox makes a module a unit of its
// own; only modules that PyTorch accepts as units can be checked.

#include <QAbstractItemModel>
#include <QString>
#include <memory>
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

class ModuleTreeModel : public QAbstractItemModel {
  Q_OBJECT

 public:
  enum Column { kName, kUnit, kParameters, kReshard, kCheckpoint, kShare, kClass, kNumColumns };
  /// A share of the model's parameters from 0 to 1, for the bar under a number.
  static constexpr int kBarRole = Qt::UserRole;
  static constexpr int kModuleNameRole = Qt::UserRole + 1;

  explicit ModuleTreeModel(QObject* parent = nullptr) : QAbstractItemModel(parent) {}

  /// Preserves the rows, and which of them a view has expanded, if it is the same model under another plan.
  void set_snapshot(SnapshotPtr snapshot);
  QModelIndex index_of_module(const QString& name) const;

  QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
  QModelIndex parent(const QModelIndex& child) const override;
  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  Qt::ItemFlags flags(const QModelIndex& index) const override;
  /// A check in the box of a module's unit requests that unit; the tree shows it after the engine has answered.
  bool setData(const QModelIndex& index, const QVariant& value, int role) override;

 signals:
  void unit_wanted(QString module, bool is_unit);

 private:
  struct Row {
    std::int64_t parameters = 0;  ///< Including all modules below it.
    bool can_be_unit = false;
    int place = 0;  ///< Index among its parent's children.
  };

  void count_parameters();
  QString shown_name(int module) const;
  QVariant display(int module, int column) const;

  SnapshotPtr snapshot_;
  std::shared_ptr<const Model> model_;
  std::vector<Row> rows_;
  std::vector<int> unit_of_;  ///< [modules] Index of the plan's unit; -1 if the module is no unit.
};

}  // namespace fsdp::gui
