#include "gui/panels/run_panel.h"

#include <QFontDatabase>
#include <QHBoxLayout>
#include <QRegularExpression>
#include <QScrollBar>
#include <QVBoxLayout>

#include "gui/theme/figure_text.h"

namespace fsdp::gui {

RunPanel::RunPanel(AppState& state, QWidget* parent) : QWidget(parent), state_(state) {
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(8, 8, 8, 8);
  auto* row = new QHBoxLayout;
  rehearse_ = new QPushButton(tr("Rehearse"), this);
  rehearse_->setObjectName("rehearse");
  rehearse_->setToolTip(tr("Run this plan with the real PyTorch on a stub GPU (fsdp-plan rehearse)"));
  execute_ = new QPushButton(tr("Execute"), this);
  execute_->setObjectName("execute");
  execute_->setToolTip(tr("Train this plan for real, one process for each rank, on this machine (fsdp-plan execute)"));
  stop_ = new QPushButton(tr("Stop"), this);
  stop_->setObjectName("stop_run");
  stop_->setToolTip(tr("End the run and all its processes"));
  progress_ = new QProgressBar(this);
  progress_->setRange(0, 0);
  progress_->setTextVisible(false);
  progress_->setMaximumSize(120, 12);
  progress_->setAccessibleName(tr("A run is in progress"));
  status_ = new QLabel(tr("A run measures what was predicted: collectives, peaks, times."), this);
  status_->setWordWrap(true);
  for (QWidget* widget : std::initializer_list<QWidget*>{rehearse_, execute_, stop_, progress_}) row->addWidget(widget);
  row->addWidget(status_, 1);
  log_ = new QPlainTextEdit(this);
  log_->setObjectName("run_log");
  log_->setAccessibleName(tr("Output of the run"));
  log_->setReadOnly(true);
  log_->setMaximumBlockCount(5000);
  log_->setLineWrapMode(QPlainTextEdit::NoWrap);
  log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  log_->setPlaceholderText(tr("The output of a run appears here."));
  column->addLayout(row);
  column->addWidget(log_);
  connect(rehearse_, &QPushButton::clicked, this, [this] { start(ProcessRun::Kind::Rehearse); });
  connect(execute_, &QPushButton::clicked, this, [this] { start(ProcessRun::Kind::Execute); });
  connect(stop_, &QPushButton::clicked, this, &RunPanel::stop);
  connect(&run_, &ProcessRun::started, this, [this](const QString& command) { say("$ " + command + "\n"); });
  connect(&run_, &ProcessRun::said, this, &RunPanel::say);
  connect(&run_, &ProcessRun::failed, this, [this](const QString& why) {
    say(why + "\n");
    status_->setText(why);
  });
  connect(&run_, &ProcessRun::measured, this, [this](const OverlayPtr& run) {
    status_->setText(tr("Measured: live peak %1.").arg(text_of(run->report->memory.peaks.live)));
    state_.set_measured(run);
  });
  connect(&run_, &ProcessRun::traced, this, &RunPanel::traced);
  connect(&run_, &ProcessRun::ended, this, [this] {
    show_running();
    emit ended();
  });
  connect(&state_, &AppState::snapshot_changed, this, &RunPanel::show_running);
  show_running();
}

void RunPanel::start(ProcessRun::Kind kind) {
  const SnapshotPtr shown = state_.snapshot();
  if (!shown || run_.is_running()) return;
  emit shown_wanted();
  status_->setText(kind == ProcessRun::Kind::Rehearse ? tr("Rehearsing …") : tr("Training …"));
  run_.start(kind, plan_file_of(*shown));
  show_running();
}

void RunPanel::say(const QString& text) {
  // A progress line overwrites itself with carriage returns; only its last state matters.
  QString clean = text;
  clean.remove(QRegularExpression("\x1b\\[[0-9;]*[A-Za-z]"));
  clean.replace(QRegularExpression("[^\n]*\r(?!\n)"), "");
  if (clean.isEmpty()) return;
  log_->moveCursor(QTextCursor::End);
  log_->insertPlainText(clean);
  log_->verticalScrollBar()->setValue(log_->verticalScrollBar()->maximum());
}

void RunPanel::show_running() {
  const bool is_running = run_.is_running();
  const bool can_start = state_.snapshot() != nullptr && !is_running;
  rehearse_->setEnabled(can_start);
  execute_->setEnabled(can_start);
  stop_->setEnabled(is_running);
  progress_->setVisible(is_running);
}

}  // namespace fsdp::gui
