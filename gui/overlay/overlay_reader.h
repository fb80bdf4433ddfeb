#pragma once

// Reads what a run left behind: a report of ours, a trace of PyTorch's profiler or of ours, a memory snapshot. Nothing
// in a file is run, and a file that is too large is refused before it is read.

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
  std::size_t events = 4'000'000;                       ///< That are kept.
};

/// Told the share that is done, 0 to 1; false: stop.
using OverlayProgress = std::function<bool(double)>;

/// Reads any of the three, by its content. Errors: it cannot be read, is none of them, is too large, was stopped.
Result<Overlay> read_overlay(const std::string& path, const OverlayLimits& limits, const OverlayProgress& progress);

/// A report of ours, with what it was compared with.
Result<Overlay> read_report_overlay(const std::string& path);
/// The last whole step of a trace (Chrome Trace Event JSON). Its "ProfilerStep#" annotations say where steps begin;
/// without them it is one step.
Result<Overlay> read_trace_overlay(const std::string& path, const OverlayLimits& limits,
                                   const OverlayProgress& progress);
/// The allocations of a memory snapshot, by category where it has categories.
Result<Overlay> read_snapshot_overlay(const std::string& path, const OverlayLimits& limits,
                                      const OverlayProgress& progress);

/// The overlay as it lies over a step of `predicted`. A step that took far longer or far less (a plan for GPUs that was
/// executed on CPU) is stretched to that length: its memory is then beside the memory of the same instructions.
Overlay laid_over(Overlay overlay, Seconds predicted);

/// Reads on a worker, so that the window goes on.
class OverlayLoader : public QObject {
  Q_OBJECT

 public:
  explicit OverlayLoader(QObject* parent = nullptr);
  ~OverlayLoader() override;

  bool is_busy() const { return is_busy_; }
  /// Begins to read; what was being read is stopped. `run`: what is known of the run besides; may be null.
  void load(const QString& path, OverlayPtr run = nullptr, const OverlayLimits& limits = {});
  void cancel();

 signals:
  void loaded(OverlayPtr overlay);
  void failed(Errors errors);
  void progressed(double share);  ///< 0 to 1.

 private:
  void take();

  QFutureWatcher<Result<Overlay>> watcher_;
  bool is_busy_ = false;  // QFutureWatcher says false before its result is delivered.
  QString next_;
  OverlayPtr run_;
  OverlayPtr next_run_;
  OverlayLimits next_limits_;
};

}  // namespace fsdp::gui
