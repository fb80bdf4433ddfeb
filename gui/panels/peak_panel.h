#pragma once

// Tensors live at the peak, or at a chosen moment: tensor by tensor, with the arithmetic of each.

#include <QLabel>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QTreeView>
#include <QWidget>

#include "gui/charts/table_twin.h"
#include "gui/panels/cost_delegate.h"
#include "gui/state/snapshot.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class PeakPanel : public QWidget {
  Q_OBJECT

 public:
  explicit PeakPanel(QWidget* parent = nullptr);

  /// Sets the snapshot and goes to its peak.
  void set_snapshot(SnapshotPtr snapshot);
  void set_theme(const Theme& theme);
  /// Both are indices in Snapshot::curves.
  void show_moment(int phase, int moment);
  void show_peak();
  QAbstractTableModel* twin_model() { return &table_; }
  /// Whether the panel is visible: rows are sorted only if it is. Defaults to visible.
  void set_in_sight(bool is_in_sight);

 signals:
  /// The user wants the peak; charts may follow.
  void peak_asked();

 private:
  void fit_columns();
  void fill(std::size_t phase, std::size_t moment, bool is_peak);

  SnapshotPtr snapshot_;
  TableTwin table_;
  QSortFilterProxyModel sorted_;
  QLabel* heading_;
  QLabel* sentence_;
  QPushButton* to_peak_;
  QTreeView* view_;
  CostDelegate* bars_;
  bool is_in_sight_ = true;
};

}  // namespace fsdp::gui
