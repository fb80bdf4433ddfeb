#pragma once

// Rehearsals and live runs from the window: `fsdp-plan rehearse PLAN` and `fsdp-plan execute PLAN` as processes; their
// report returns as the measurement.

#include <QObject>
#include <QProcess>
#include <QString>
#include <QTemporaryDir>
#include <QTimer>
#include <memory>

#include "core/plan/plan_file.h"
#include "gui/overlay/overlay.h"

namespace fsdp::gui {

/// The command that belongs to this program: in its folder, or on the path. The variable FSDP_PLAN_BINARY names
/// another. Empty if there is none.
QString find_command();

class ProcessRun : public QObject {
  Q_OBJECT

 public:
  enum class Kind { Rehearse, Execute };

  explicit ProcessRun(QObject* parent = nullptr);
  ~ProcessRun() override;

  bool is_running() const { return process_.state() != QProcess::NotRunning; }
  /// Starts one run; `failed` gives the reason if it cannot. REQUIRES: none runs.
  void start(Kind kind, const PlanFile& plan);
  /// Asks it to end, and kills it if it does not.
  void stop();

 signals:
  void started(QString command);
  /// Its output, as it arrives.
  void said(QString text);
  /// Its measurements.
  void measured(OverlayPtr run);
  /// The trace of its measurement; the file exists until the next run.
  void traced(QString path, OverlayPtr run);
  void failed(QString why);
  /// The run ended, for any reason.
  void ended();

 private:
  void finish(int code, QProcess::ExitStatus status);

  QProcess process_;
  QTimer kill_timer_;
  std::unique_ptr<QTemporaryDir> folder_;
  Plan plan_;  ///< The running plan.
  bool was_stopped_ = false;
};

}  // namespace fsdp::gui
