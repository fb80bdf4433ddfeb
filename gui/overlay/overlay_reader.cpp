#include "gui/overlay/overlay_reader.h"

#include <QtConcurrentRun>
#include <filesystem>
#include <fstream>

#include "core/base/parse_units.h"
#include "core/formats/pickle.h"
#include "core/report/report_reader.h"

namespace fsdp::gui {

namespace {

// A report has its version among its first keys; a trace has "traceEvents" somewhere, often far into the file.
bool is_report(const std::string& head) {
  return head.find("\"format_version\"") != std::string::npos;
}

}  // namespace

Result<Overlay> read_overlay(const std::string& path, const OverlayLimits& limits, const OverlayProgress& progress) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return failure(path, "There is no such file.", "Give a run report, a trace or a memory snapshot.");
  }
  std::ifstream file(path, std::ios::binary);
  std::string head(4096, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (is_pickle(head)) return read_snapshot_overlay(path, limits, progress);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (head[first] == '{' || head[first] == '[');
  if (!is_json) {
    return failure(
        path, "This is not a run report, trace or memory snapshot.",
        "--json prints a report, torch.profiler exports a trace, torch.cuda.memory._dump_snapshot writes a snapshot.");
  }
  if (!is_report(head)) return read_trace_overlay(path, limits, progress);
  return read_report_overlay(path);
}

Result<Overlay> read_report_overlay(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  FSDP_TRY(StepReport report, read_report(document));
  Overlay overlay;
  FSDP_TRY(overlay.own, read_comparison(document));
  overlay.name = std::filesystem::path(path).filename();
  overlay.source = "run report";
  overlay.step = report.time.step;
  overlay.knows_traffic = true;
  overlay.report = std::move(report);
  return overlay;
}

Overlay laid_over(Overlay overlay, Seconds predicted) {
  constexpr double kNear = 3;
  const double ratio = overlay.step.count() > 0 && predicted.count() > 0 ? overlay.step / predicted : 1;
  if (ratio < kNear && ratio > 1 / kNear) return overlay;
  overlay.stretch = 1 / ratio;
  for (double& time : overlay.time) time *= overlay.stretch;
  for (StreamEvent& event : overlay.events) {
    for (Seconds* time : {&event.start, &event.end, &event.exposed}) *time = *time * overlay.stretch;
  }
  return overlay;
}

OverlayLoader::OverlayLoader(QObject* parent) : QObject(parent) {
  qRegisterMetaType<OverlayPtr>("OverlayPtr");
  connect(&watcher_, &QFutureWatcher<Result<Overlay>>::finished, this, &OverlayLoader::take);
  connect(&watcher_, &QFutureWatcher<Result<Overlay>>::progressValueChanged, this,
          [this](int thousandths) { emit progressed(thousandths / 1000.0); });
}

OverlayLoader::~OverlayLoader() {
  watcher_.cancel();
  watcher_.waitForFinished();
}

void OverlayLoader::load(const QString& path, OverlayPtr run, const OverlayLimits& limits) {
  if (is_busy_) {
    next_ = path;
    next_run_ = std::move(run);
    next_limits_ = limits;
    watcher_.cancel();
    return;
  }
  is_busy_ = true;
  run_ = std::move(run);
  watcher_.setFuture(QtConcurrent::run([path = path.toStdString(), limits](QPromise<Result<Overlay>>& promise) {
    promise.setProgressRange(0, 1000);
    promise.addResult(read_overlay(path, limits, [&](double share) {
      promise.setProgressValue(static_cast<int>(1000 * share));
      return !promise.isCanceled();
    }));
  }));
}

void OverlayLoader::cancel() {
  next_.clear();
  if (is_busy_) watcher_.cancel();
}

void OverlayLoader::take() {
  is_busy_ = false;
  const QFuture<Result<Overlay>> future = watcher_.future();
  if (!next_.isEmpty()) {
    const QString path = std::exchange(next_, {});
    return load(path, std::exchange(next_run_, nullptr), next_limits_);
  }
  // The caller that canceled knows it.
  if (future.isCanceled() || future.resultCount() == 0) return;
  Result<Overlay> result = future.result();
  if (result && run_) {
    result->report = run_->report;
    result->own = run_->own;
    result->plan = run_->plan;
    result->knows_traffic = run_->knows_traffic;
  }
  if (result)
    emit loaded(std::make_shared<const Overlay>(*std::move(result)));
  else
    emit failed(result.error());
}

}  // namespace fsdp::gui
