#pragma once

// Runs from the window: start, watch, stop, and their output.

#include <QLabel>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QWidget>

#include "gui/state/app_state.h"
#include "gui/state/process_run.h"

namespace fsdp::gui {

class RunPanel : public QWidget {
  Q_OBJECT

 public:
  explicit RunPanel(AppState& state, QWidget* parent = nullptr);
  /// Runs the plan on the screen.
  void start(ProcessRun::Kind kind);
  void stop() { run_.stop(); }
  bool is_running() const { return run_.is_running(); }
  QString log() const { return log_->toPlainText(); }

 signals:
  /// A run began: bring this panel to the front.
  void shown_wanted();
  void ended();
  /// ProcessRun::traced.
  void traced(QString path, OverlayPtr run);

 private:
  void say(const QString& text);
  void show_running();

  AppState& state_;
  ProcessRun run_;
  QPushButton* rehearse_;
  QPushButton* execute_;
  QPushButton* stop_;
  QProgressBar* progress_;
  QLabel* status_;
  QPlainTextEdit* log_;
};

}  // namespace fsdp::gui
