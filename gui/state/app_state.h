#pragma once

// The only owner of the window's state: the inputs, the answer to them, the pinned baseline and the measurements.
// Widgets read it and request changes; they store no state of their own.

#include <QObject>
#include <QString>
#include <QTimer>
#include <QUndoStack>
#include <memory>
#include <string>

#include "gui/overlay/overlay.h"
#include "gui/state/engine.h"
#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

class AppState : public QObject {
  Q_OBJECT

 public:
  explicit AppState(std::string library, QObject* parent = nullptr);

  const std::string& library() const { return library_; }
  const Inputs& inputs() const { return inputs_; }
  bool has_model() const { return !inputs_.model.empty(); }
  SnapshotPtr snapshot() const { return snapshot_; }  ///< The last good answer; may be null.
  /// The pinned snapshot; may be null. Stays when another file opens.
  SnapshotPtr baseline() const { return baseline_; }
  const QString& baseline_name() const { return baseline_name_; }  ///< Its file's name. Empty if pinned here.
  OverlayPtr measured() const { return measured_; }                ///< The results of a run; may be null.
  const Errors& errors() const { return errors_; }  ///< Errors of the newest inputs; empty when they have an answer.
  bool is_busy() const { return is_busy_; }         ///< Whether the newest inputs are not fully answered yet.
  /// Whether the picture belongs to older inputs, and has for longer than 150 ms.
  bool is_stale() const { return is_stale_; }
  QUndoStack& undo_stack() { return undo_; }

  /// Changes the inputs as one step of undo. Changes with the same `merge_key` above 0 that follow each other become
  /// one step: a slider that is dragged.
  void change(const Inputs& inputs, const QString& text, int merge_key = 0);
  /// Opens another state; the changes of the one before cannot be undone any more.
  void open(const Inputs& inputs);
  /// Keeps the plan on the screen, or lets the planner search again.
  void set_kept(bool is_kept);
  /// Changes to another plan for the same work: a point of the Pareto chart, or an edited plan.
  void keep_plan(const Plan& plan, const QString& text);
  /// Applies one change to the plan that is shown, exactly as it was priced.
  void apply_remedy(const planner::Remedy& remedy);

  void pin_baseline();
  void set_baseline(SnapshotPtr baseline, const QString& name = {});
  /// Shows errors of a user's action that made no request, until the next request.
  void report_errors(const Errors& errors);
  void set_measured(OverlayPtr measured);
  void cancel_search() { engine_.cancel(); }
  Engine& engine() { return engine_; }

 signals:
  void inputs_changed();
  void snapshot_changed();
  void baseline_changed();
  void measured_changed();
  void errors_changed();
  void busy_changed();
  void stale_changed();
  void progressed(QString text);

 private:
  friend class InputsChange;
  void apply(const Inputs& inputs);
  void take(const SnapshotPtr& snapshot);
  void fail(std::uint64_t id, const Errors& errors);
  void set_busy(bool is_busy);
  void set_stale(bool is_stale);

  std::string library_;
  Inputs inputs_;
  SnapshotPtr snapshot_;
  SnapshotPtr baseline_;
  QString baseline_name_;
  OverlayPtr measured_;
  Errors errors_;
  bool is_busy_ = false;
  bool is_stale_ = false;
  std::uint64_t asked_ = 0;
  std::uint64_t oldest_ = 0;  // Answers with a smaller id belong to the file that was open before.
  QUndoStack undo_;
  QTimer stale_timer_;
  Engine engine_;  // The last member: its worker must end before the members that it reports to.
};

}  // namespace fsdp::gui
