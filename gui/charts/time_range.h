#pragma once

// The stretch of time that several charts show together: visible range, selection, pointer. A change of it changes all
// charts.

#include <QObject>
#include <optional>
#include <vector>

#include "gui/charts/chart_axis.h"

namespace fsdp::gui {

class TimeRange : public QObject {
  Q_OBJECT

 public:
  explicit TimeRange(QObject* parent = nullptr) : QObject(parent) {}

  const ValueRange& full() const { return full_; }
  const ValueRange& visible() const { return visible_; }
  const std::optional<ValueRange>& selection() const { return selection_; }
  const std::optional<double>& pointer() const { return pointer_; }
  bool is_whole() const { return visible_ == full_; }
  bool can_undo() const { return !before_.empty(); }

  /// Sets the range of new data: a view of everything stays one, and a zoom covers the same share of the whole.
  void set_full(const ValueRange& full);
  /// Shows the range nearest to `visible` that is allowed. It can be undone; changes that follow each other within half
  /// a second are undone as one.
  void show(const ValueRange& visible);
  void zoom(double factor, double at);
  void pan(double distance);
  void show_all() { show(full_); }
  void show_selection();
  void undo();

  void select(const std::optional<ValueRange>& selection);
  void point(const std::optional<double>& pointer);

 signals:
  void changed();
  void selection_changed();
  void pointer_changed();

 private:
  double narrowest() const { return full_.width() * 1e-6; }
  void apply(const ValueRange& visible);

  ValueRange full_{0, 1};
  ValueRange visible_{0, 1};
  std::optional<ValueRange> selection_;
  std::optional<double> pointer_;
  std::vector<ValueRange> before_;
  qint64 last_change_ = 0;
};

}  // namespace fsdp::gui
