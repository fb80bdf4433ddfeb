#pragma once

// Reads the output of a run: a report of ours, a trace of PyTorch's profiler or of ours, or a memory snapshot. Runs
// nothing that a file contains, and refuses a file that is too large before reading it.

#include <QFutureWatcher>
#include <QObject>
#include <QPromise>
#include <QString>
#include <functional>
#include <string>

#include "core/base/result.h"
#include "gui/overlay/overlay.h"

namespace fsdp::gui {

struct OverlayLimits {
  std::int64_t snapshot_bytes = std::int64_t{1} << 30;  ///< A snapshot is read whole.
  std::int64_t trace_bytes = std::int64_t{16} << 30;    ///< A trace is read in pieces.
  std::size_t events = 4'000'000;                       ///< Most events to store.
};

/// Called with the share that is done, 0 to 1. Returns false to stop.
using OverlayProgress = std::function<bool(double)>;

/// Reads any of the three, by its content. Errors: the file cannot be read, is none of them, or is too large; the
/// reading was stopped.
Result<Overlay> read_overlay(const std::string& path, const OverlayLimits& limits, const OverlayProgress& progress);

/// A report of ours, with its comparison if it has one.
Result<Overlay> read_report_overlay(const std::string& path);
/// The last whole step of a trace (Chrome Trace Event JSON). Its "ProfilerStep#" annotations mark the start of each
/// step; without them it is one step.
Result<Overlay> read_trace_overlay(const std::string& path, const OverlayLimits& limits,
                                   const OverlayProgress& progress);
/// The allocations of a memory snapshot, by category if it records categories.
Result<Overlay> read_snapshot_overlay(const std::string& path, const OverlayLimits& limits,
                                      const OverlayProgress& progress);

/// Lays the overlay over a step of `predicted`. A step that took far longer or far less (a plan for GPUs that ran on
/// CPU) is stretched to that length, so that its memory stands next to the prediction for the same instructions.
Overlay laid_over(Overlay overlay, Seconds predicted);

/// Reads on a worker thread, so that the window stays responsive.
class OverlayLoader : public QObject {
  Q_OBJECT

 public:
  explicit OverlayLoader(QObject* parent = nullptr);
  ~OverlayLoader() override;

  bool is_busy() const { return is_busy_; }
  /// Starts to read, and stops the reading in progress. `run`: other facts of the run; may be null.
  void load(const QString& path, OverlayPtr run = nullptr, const OverlayLimits& limits = {});
  void cancel();

 signals:
  void loaded(OverlayPtr overlay);
  void failed(Errors errors);
  void progressed(double share);  ///< 0 to 1.

 private:
  void take();

  QFutureWatcher<Result<Overlay>> watcher_;
  bool is_busy_ = false;  // QFutureWatcher returns false before its result is delivered.
  QString next_;
  OverlayPtr run_;
  OverlayPtr next_run_;
  OverlayLimits next_limits_;
};

}  // namespace fsdp::gui
