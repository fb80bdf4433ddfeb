#pragma once

// The pinned baseline next to the current plan: every figure and every decision that differs, and by how much. The same
// table compares a prediction with a measurement.

#include <QLabel>
#include <QSortFilterProxyModel>
#include <QTreeView>
#include <QWidget>
#include <optional>

#include "core/report/compare.h"
#include "gui/charts/table_twin.h"
#include "gui/overlay/overlay.h"
#include "gui/state/snapshot.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

/// One line of a comparison.
struct ComparedFigure {
  enum class Kind { Bytes, Time, Number, Share, Text };
  QString group;  ///< "plan", "time", "memory", "live at the peak", "traffic".
  QString name;
  Kind kind = Kind::Text;
  double before = 0;
  double after = 0;
  QString text_before;  ///< The value of a Text.
  QString text_after;
  bool less_is_good = true;

  bool differs() const { return kind == Kind::Text ? text_before != text_after : before != after; }
  double difference() const { return after - before; }
};

/// All figures that two reports share, in reading order, including equal ones.
std::vector<ComparedFigure> compared_figures(const StepReport& before, const StepReport& after);
/// Predicted (before) and measured (after): the figures that both have.
struct MeasuredComparison {
  std::vector<ComparedFigure> figures;
  std::optional<ComparedTerm> live_peak;
  QStringList notes;           ///< Further notes, one sentence each.
  bool is_of_another = false;  ///< The snapshot has hardly a tensor of this plan.
};
/// If the command compared a run with its own prediction, that comparison is shown. The prediction of this window is
/// for the plan on the screen, perhaps for other devices.
MeasuredComparison measured_figures(const Snapshot& shown, const Overlay& measured);
/// A snapshot is of something else if less than this share of the plan's bytes is in tensors of equal size.
inline constexpr double kLeastKnownShare = 0.25;

class ComparisonPanel : public QWidget {
  Q_OBJECT

 public:
  explicit ComparisonPanel(QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot);
  /// May be null. `name`: the name of its file; empty if it was pinned in this window.
  void set_baseline(SnapshotPtr baseline, const QString& name = {});
  void set_overlay(OverlayPtr overlay);  ///< May be null. Compared with the plan if no baseline is pinned.
  void set_theme(const Theme& theme);
  QAbstractTableModel* twin_model() { return &table_; }

 private:
  void fill();

  SnapshotPtr snapshot_;
  SnapshotPtr baseline_;
  QString baseline_name_;
  OverlayPtr overlay_;
  Theme theme_ = light_theme();
  TableTwin table_;
  QLabel* heading_;
  QTreeView* view_;
};

}  // namespace fsdp::gui
