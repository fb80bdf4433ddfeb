// The charts of the window: how they follow the state and each other, their overlays, and their export.

#include <QApplication>
#include <QFileDialog>
#include <QMenu>
#include <QStatusBar>

#include "core/base/files.h"
#include "core/formats/trace_json.h"
#include "gui/charts/export_chart.h"
#include "gui/window/main_window.h"
#include "gui/window/share_page.h"
#include "replay/export_step.h"

namespace fsdp::gui {

void MainWindow::build_charts() {
  range_ = new TimeRange(this);
  memory_ = new MemoryTimelineWidget(range_, charts_);
  memory_->setObjectName("memory");
  memory_->setAccessibleName(memory_->title());
  streams_ = new StreamTimelineWidget(range_, charts_);
  streams_->setObjectName("streams");
  streams_->setAccessibleName(streams_->title());
  charts_->addWidget(memory_);
  charts_->addWidget(streams_);
  memory_->setMinimumHeight(112);
  streams_->setMinimumHeight(96);
  charts_->setStretchFactor(0, 3);
  charts_->setStretchFactor(1, 2);
  pareto_ = new ParetoWidget(this);
  pareto_->setObjectName("pareto");
  pareto_->setAccessibleName(pareto_->title());
  pareto_->setMinimumHeight(110);
  peak_ = new PeakPanel(this);
  comparison_ = new ComparisonPanel(this);
  teaching_ = new TeachingWidget(this);
  teaching_->setObjectName("teaching");
  teaching_->setAccessibleName(tr("One iteration, step by step"));
  tables_ = new TablePanel(this);
  tables_->add_table(memory_->title(), memory_->twin_model());
  tables_->add_table(streams_->title(), streams_->twin_model());
  tables_->add_table(pareto_->title(), pareto_->twin_model());
  tables_->add_table(tr("Live tensors"), peak_->twin_model());
  tables_->add_table(tr("Differences"), comparison_->twin_model());
  connect_charts();
}

std::array<PlotWidget*, 3> MainWindow::plots() const {
  return {memory_, streams_, pareto_};
}

void MainWindow::connect_charts() {
  connect(pareto_, &ParetoWidget::plan_chosen, this,
          [this](const Plan& plan) { state_.keep_plan(plan, tr("take a plan of the chart")); });
  connect(pareto_, &ParetoWidget::search_wanted, this, [this] { state_.set_kept(false); });
  connect(verdict_, &VerdictBar::peak_clicked, this, [this] {
    memory_->go_to_peak();
    peak_->show_peak();
    show_view("peak");
  });
  connect(peak_, &PeakPanel::peak_asked, memory_, &MemoryTimelineWidget::go_to_peak);
  connect(memory_, &MemoryTimelineWidget::moment_chosen, this, [this](int phase, int moment) {
    peak_->show_moment(phase, moment);
    show_view("peak");
  });
  const auto show_unit = [this](const QString& unit) {
    streams_->select_unit(unit);
    modules_->show_module(unit);
  };
  connect(streams_, &StreamTimelineWidget::unit_chosen, this, show_unit);
  connect(memory_, &MemoryTimelineWidget::unit_chosen, this, show_unit);
  connect(teaching_, &TeachingWidget::moment_changed, this, [this](double seconds) { range_->point(seconds); });
  for (PlotWidget* chart : plots()) {
    connect(chart, &PlotWidget::status_changed, this, [this](const QString& text) { statusBar()->showMessage(text); });
  }
  connect(&overlays_, &OverlayLoader::loaded, this, [this](const OverlayPtr& overlay) {
    state_.set_measured(overlay);
    log(tr("Laid over the prediction: %1").arg(text_of(overlay->name)));
  });
  connect(&overlays_, &OverlayLoader::failed, this, [this](const Errors& errors) { state_.report_errors(errors); });
  connect(&overlays_, &OverlayLoader::progressed, this, [this](double share) {
    statusBar()->showMessage(tr("Reading the measurement: %1 %").arg(share * 100, 0, 'f', 0));
  });
  connect(&state_, &AppState::measured_changed, this, [this] {
    place_overlay();
    comparison_->set_overlay(state_.measured());
  });
  connect(&state_, &AppState::baseline_changed, this, [this] {
    for (PlotWidget* chart : plots()) chart->set_baseline(state_.baseline());
    comparison_->set_baseline(state_.baseline(), state_.baseline_name());
    if (state_.baseline()) show_view("differences");
  });
}

// The step under the overlay changes with the plan.
void MainWindow::place_overlay() {
  const SnapshotPtr shown = state_.snapshot();
  OverlayPtr placed = state_.measured();
  if (placed && shown) placed = std::make_shared<const Overlay>(laid_over(*placed, shown->curves.step));
  memory_->set_overlay(placed);
  streams_->set_overlay(placed);
}

void MainWindow::show_charts() {
  const SnapshotPtr shown = state_.snapshot();
  for (PlotWidget* chart : plots()) chart->set_snapshot(shown);
  show_waiting();
  peak_->set_snapshot(shown);
  comparison_->set_snapshot(shown);
  teaching_->set_snapshot(shown);
  if (state_.measured()) place_overlay();
}

// "Choose a model" is wrong advice before the first answer has arrived.
void MainWindow::show_waiting() {
  const bool is_waiting = state_.has_model() && state_.snapshot() == nullptr && state_.errors().empty();
  for (PlotWidget* chart : plots()) chart->set_is_waiting(is_waiting);
}

void MainWindow::theme_charts() {
  for (PlotWidget* chart : plots()) chart->set_theme(theme_);
  peak_->set_theme(theme_);
  comparison_->set_theme(theme_);
  teaching_->set_theme(theme_);
}

void MainWindow::build_export_menu(QMenu& file) {
  QMenu& menu = *file.addMenu(tr("&Export"));
  menu.setToolTipsVisible(true);
  const QString pictures = tr("Pictures (*.png *.svg *.pdf)");
  const auto export_chart = [this, pictures](PlotWidget* chart) {
    const QString path = QFileDialog::getSaveFileName(this, tr("Export"), chart->objectName() + ".png", pictures);
    if (!path.isEmpty()) finish_export(path, save_chart(*chart, path));
  };
  add_action(menu, "export_memory", tr("&Memory …"), QKeySequence(Qt::CTRL | Qt::Key_E),
             tr("The chart of memory as PNG, SVG or PDF"), [=, this] { export_chart(memory_); });
  add_action(menu, "export_streams", tr("&Streams …"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_E),
             tr("The chart of streams as PNG, SVG or PDF"), [=, this] { export_chart(streams_); });
  add_action(menu, "export_plans", tr("&Plans …"), {}, tr("The chart of plans as PNG, SVG or PDF"),
             [=, this] { export_chart(pareto_); });
  add_action(menu, "export_table", tr("&Table …"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_T),
             tr("The table that is chosen under Tables, as CSV or Markdown"), [this] {
               const QString path =
                   QFileDialog::getSaveFileName(this, tr("Export"), "table.csv", tr("Tables (*.csv *.md)"));
               if (!path.isEmpty()) finish_export(path, save_table(*tables_->current(), path));
             });
  add_action(menu, "export_page", tr("P&age to share …"), {},
             tr("One HTML page with the verdict, the command, the charts and the whole answer"),
             [this] { share_page(); });
  add_action(menu, "export_trace", tr("T&race …"), {},
             tr("The predicted step for Perfetto and other readers of PyTorch's profiler"), [this] {
               const QString path =
                   QFileDialog::getSaveFileName(this, tr("Export"), "trace.json", tr("Traces (*.json)"));
               if (path.isEmpty() || !state_.snapshot()) return;
               const Snapshot& shown = *state_.snapshot();
               finish_export(path, write_file_atomically(path.toStdString(),
                                                         to_chrome_trace(replay::trace_of(shown.report, shown.curves)),
                                                         Overwrite::Allow));
             });
  add_action(menu, "export_snapshot", tr("Memory s&napshot …"), {},
             tr("The predicted step for PyTorch's memory viewer (pytorch.org/memory_viz)"), [this] {
               const QString path =
                   QFileDialog::getSaveFileName(this, tr("Export"), "memory.pickle", tr("Snapshots (*.pickle)"));
               if (path.isEmpty() || !state_.snapshot()) return;
               finish_export(path, write_file_atomically(path.toStdString(),
                                                         replay::to_memory_snapshot(state_.snapshot()->curves),
                                                         Overwrite::Allow));
             });
}

void MainWindow::share_page() {
  const SnapshotPtr shown = state_.snapshot();
  if (!shown) return;
  const QString path = QFileDialog::getSaveFileName(this, tr("Share"), "plan.html", tr("Pages (*.html)"));
  if (path.isEmpty()) return;
  const std::array<PlotWidget*, 3> charts = plots();
  finish_export(path,
                write_file_atomically(path.toStdString(), page_to_share(state_.inputs(), *shown, charts).toStdString(),
                                      Overwrite::Allow));
}

void MainWindow::finish_export(const QString& path, const Result<void>& written) {
  if (written) {
    log(tr("Saved %1").arg(path));
  } else {
    state_.report_errors(written.error());
  }
}

}  // namespace fsdp::gui
