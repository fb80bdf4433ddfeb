#pragma once

// The pinned baseline beside the current plan: every figure and every decision that differs, and by how much. The same
// table lines up a prediction with what was measured.

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
  QString text_before;  ///< For a Text.
  QString text_after;
  bool less_is_good = true;

  bool differs() const { return kind == Kind::Text ? text_before != text_after : before != after; }
  double difference() const { return after - before; }
};

/// All figures of two reports that can be compared, in reading order; those that do not differ too.
std::vector<ComparedFigure> compared_figures(const StepReport& before, const StepReport& after);
/// Predicted (before) and measured (after): what both know, and nothing else.
struct MeasuredComparison {
  std::vector<ComparedFigure> figures;
  std::optional<ComparedTerm> live_peak;
  QStringList notes;           ///< Further notes: a sentence each.
  bool is_of_another = false;  ///< A snapshot that has hardly a tensor of this plan.
};
/// A run that the command compared with its own prediction is shown as the command compared it; what this window knows
/// is the prediction of the plan that is shown, which may be for other devices.
MeasuredComparison measured_figures(const Snapshot& shown, const Overlay& measured);
/// A snapshot with less than this share of the plan's bytes in tensors of equal size is of something else.
inline constexpr double kLeastKnownShare = 0.25;

class ComparisonPanel : public QWidget {
  Q_OBJECT

 public:
  explicit ComparisonPanel(QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot);
  /// May be null. `name`: of its file; empty: it was pinned in this window.
  void set_baseline(SnapshotPtr baseline, const QString& name = {});
  void set_overlay(OverlayPtr overlay);  ///< May be null; is compared when nothing is pinned.
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
