#include "gui/state/process_run.h"

#include <QCoreApplication>
#include <QFileInfo>
#include <QStandardPaths>

#include "core/base/files.h"
#include "gui/overlay/overlay_reader.h"

namespace fsdp::gui {

namespace {

/// The command needs up to this to end its child processes.
constexpr int kGraceMilliseconds = 15'000;

QString errors_text(const Errors& errors) {
  QStringList lines;
  for (const Error& error : errors) lines << QString::fromStdString(to_string(error));
  return lines.join('\n');
}

}  // namespace

QString find_command() {
  const QString given = qEnvironmentVariable("FSDP_PLAN_BINARY");
  if (!given.isEmpty()) return QFileInfo(given).isExecutable() ? given : QString();
  const QString beside = QCoreApplication::applicationDirPath() + "/fsdp-plan";
  return QFileInfo(beside).isExecutable() ? beside : QStandardPaths::findExecutable("fsdp-plan");
}

ProcessRun::ProcessRun(QObject* parent) : QObject(parent) {
  process_.setProcessChannelMode(QProcess::MergedChannels);
  process_.setStandardInputFile(QProcess::nullDevice());
  kill_timer_.setSingleShot(true);
  kill_timer_.setInterval(kGraceMilliseconds);
  connect(&kill_timer_, &QTimer::timeout, &process_, &QProcess::kill);
  connect(&process_, &QProcess::readyRead, this, [this] { emit said(QString::fromUtf8(process_.readAll())); });
  connect(&process_, &QProcess::finished, this, &ProcessRun::finish);
  connect(&process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return;
    emit failed(tr("%1 cannot be started: %2.").arg(process_.program(), process_.errorString()));
    emit ended();
  });
}

ProcessRun::~ProcessRun() {
  disconnect(&process_, nullptr, this, nullptr);
  if (!is_running()) return;
  process_.terminate();
  if (!process_.waitForFinished(kGraceMilliseconds)) process_.kill();
  process_.waitForFinished(1000);
}

void ProcessRun::start(Kind kind, const PlanFile& plan) {
  const QString command = find_command();
  if (command.isEmpty()) {
    emit failed(
        tr("The command fsdp-plan was not found, neither next to this program nor on PATH. Install the package "
           "fsdp-plan, or name the command in the variable FSDP_PLAN_BINARY."));
    emit ended();
    return;
  }
  folder_ = std::make_unique<QTemporaryDir>();
  const QString plan_path = folder_->filePath("plan.json");
  const auto written = write_file_atomically(plan_path.toStdString(), to_text(plan), Overwrite::Allow);
  if (!written) {
    emit failed(errors_text(written.error()));
    emit ended();
    return;
  }
  was_stopped_ = false;
  plan_ = plan.plan;
  const QString verb = kind == Kind::Rehearse ? "rehearse" : "execute";
  QStringList arguments = {verb, plan_path, "-o", folder_->filePath("report.json"), "--color", "never"};
  // A rehearsal has no GPU clock, and so no trace for the chart.
  if (kind == Kind::Execute) arguments << "--chrome-trace" << folder_->filePath("trace.json");
  emit started("fsdp-plan " + verb + " plan.json");
  process_.start(command, arguments);
}

void ProcessRun::stop() {
  if (!is_running()) return;
  was_stopped_ = true;
  process_.terminate();
  kill_timer_.start();
}

void ProcessRun::finish(int code, QProcess::ExitStatus status) {
  kill_timer_.stop();
  emit said(QString::fromUtf8(process_.readAll()));
  const QString report_path = folder_->filePath("report.json");
  if (was_stopped_) {
    emit said(tr("Stopped. Nothing is left running.\n"));
  } else if (status == QProcess::CrashExit) {
    emit failed(tr("The run was ended by a signal."));
  } else if (code > 1 || !QFileInfo::exists(report_path)) {
    emit failed(tr("The run ended with exit code %1; its output is under Runs.").arg(code));
  } else {
    Result<Overlay> run = read_report_overlay(report_path.toStdString());
    if (run) {
      run->name = "the run";
      run->plan = plan_;
      const auto shared = std::make_shared<const Overlay>(*std::move(run));
      emit measured(shared);
      const QString trace = folder_->filePath("trace.json");
      if (QFileInfo::exists(trace)) emit traced(trace, shared);
    } else {
      emit failed(errors_text(run.error()));
    }
  }
  emit ended();
}

}  // namespace fsdp::gui
