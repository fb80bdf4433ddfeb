#pragma once

// The modules of a model as a tree: what each holds, and which FSDP unit it is. A checkbox makes a module a unit of its
// own; only modules that PyTorch would let be one can be checked.

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

  /// Keeps the rows, and what is expanded in a view, when it is the same model under another plan.
  void set_snapshot(SnapshotPtr snapshot);
  QModelIndex index_of_module(const QString& name) const;

  QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
  QModelIndex parent(const QModelIndex& child) const override;
  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  Qt::ItemFlags flags(const QModelIndex& index) const override;
  /// Checking a module's unit asks for it; the tree shows it once the engine has answered.
  bool setData(const QModelIndex& index, const QVariant& value, int role) override;

 signals:
  void unit_wanted(QString module, bool is_unit);

 private:
  struct Row {
    std::int64_t parameters = 0;  ///< With all below it.
    bool can_be_unit = false;
    int place = 0;  ///< Among its parent's children.
  };

  void count_parameters();
  QString shown_name(int module) const;
  QVariant display(int module, int column) const;

  SnapshotPtr snapshot_;
  std::shared_ptr<const Model> model_;
  std::vector<Row> rows_;
  std::vector<int> unit_of_;  ///< [modules] In the plan's units; -1: none of its own.
};

}  // namespace fsdp::gui
