// Files of the window: opening, saving, dropping, and saving for recovery.

#include <QAbstractButton>
#include <QApplication>
#include <QDateTime>
#include <QDragEnterEvent>
#include <QFile>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenu>
#include <QMessageBox>
#include <QMimeData>
#include <QStatusBar>

#include "core/base/files.h"
#include "core/formats/pickle.h"
#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "gui/state/machine.h"
#include "gui/state/project_file.h"
#include "gui/window/main_window.h"

namespace fsdp::gui {

namespace {

QString errors_text(const Errors& errors) {
  QStringList lines;
  for (const Error& error : errors) lines << text_of(to_string(error));
  return lines.join('\n');
}

/// A pickle of any kind; the reader finds out what it contains.
bool holds_pickle(const QString& path) {
  QFile file(path);
  return file.open(QFile::ReadOnly) && is_pickle(file.read(16).toStdString());
}

}  // namespace

// A file may be a project, a plan, a report or a model; a name may be that of a shipped model.
Result<Inputs> MainWindow::inputs_of(const QString& path, const GivenOptions& options) const {
  const std::vector<std::string> shipped = model_names(state_.library());
  const bool is_shipped = std::find(shipped.begin(), shipped.end(), path.toStdString()) != shipped.end();
  // A path in the state is absolute, because a plan or a command may be used from another folder.
  const std::string name =
      is_shipped || !QFileInfo::exists(path) ? path.toStdString() : QFileInfo(path).absoluteFilePath().toStdString();
  if (!is_shipped && QFileInfo::exists(path) && is_project(name)) {
    FSDP_TRY(Inputs project, read_project(name));
    return with_options(std::move(project), options);
  }
  FSDP_TRY(Inputs inputs, inputs_of_file(name, state_.library()));
  FSDP_TRY(inputs, with_options(std::move(inputs), options));
  if (inputs.kept) return inputs;
  const auto found = find_model_file(name, state_.library());
  if (found) {
    const auto spec = read_model_file(*found);
    if (!spec) return tl::unexpected(spec.error());
  }
  // A model names no machines.
  return names_machines(inputs) ? inputs : on_machine(std::move(inputs), start_->machine());
}

bool MainWindow::open_file(const QString& path, const GivenOptions& options) {
  if (holds_pickle(path)) {
    open_recording(path);
    return true;
  }
  if (!may_discard()) return false;
  const Result<Inputs> inputs = inputs_of(path, options);
  if (!inputs) {
    const QString text = errors_text(inputs.error());
    start_->show_errors(text);
    if (state_.has_model()) {
      state_.report_errors(inputs.error());
    } else {
      log(text);
    }
    return false;
  }
  start_->show_errors({});
  shows_recording_ = false;
  const bool is_file = QFileInfo::exists(path);
  if (is_file) settings_.add_recent_file(path);
  set_current_file(is_file && is_project(path.toStdString()) ? path : QString());
  opened_ = is_file ? path : QString();
  saved_ = *inputs;
  state_.open(saved_);
  return true;
}

void MainWindow::compare_with(const QString& path) {
  const Result<Inputs> inputs = inputs_of(path, {});
  if (!inputs) {
    state_.report_errors(inputs.error());
    return;
  }
  statusBar()->showMessage(tr("Answering %1 …").arg(path));
  baselines_.load(*inputs, QFileInfo(path).fileName());
}

void MainWindow::load_measured(const QString& path) {
  measured_path_ = path;
  if (state_.has_model()) return overlays_.load(path);
  if (holds_pickle(path)) return open_recording(path);
  start_->show_errors(tr("Open the plan that ran first: the measurement is laid over its prediction."));
}

void MainWindow::open_recording(const QString& path) {
  shows_recording_ = true;
  recording_->open(path);
  show_pages();
  show_title();
}

void MainWindow::close_recording() {
  shows_recording_ = false;
  show_pages();
  show_title();
}

void MainWindow::connect_recordings() {
  connect(recording_, &RecordingView::closed, this, &MainWindow::close_recording);
  connect(recording_, &RecordingView::opened, this, [this] { settings_.add_recent_file(recording_->path()); });
  connect(recording_, &RecordingView::failed, this, [this](const Errors& errors) {
    close_recording();
    start_->show_errors(errors_text(errors));
    if (state_.has_model()) state_.report_errors(errors);
    log(errors_text(errors));
  });
  connect(&baselines_, &BaselineLoader::loaded, this, [this](const SnapshotPtr& baseline, const QString& name) {
    state_.set_baseline(baseline, name);
    log(tr("Compared with %1").arg(name));
  });
  connect(&baselines_, &BaselineLoader::failed, this, [this](const Errors& errors) { state_.report_errors(errors); });
}

void MainWindow::open_model(const QString& name) {
  open_file(name);
}

void MainWindow::open_example(int example) {
  const std::vector<Example> all = examples();
  if (example < 0 || example >= static_cast<int>(all.size()) || !may_discard()) return;
  set_current_file({});
  opened_.clear();
  shows_recording_ = false;
  saved_ = all[example].inputs;
  state_.open(saved_);
}

// The machine of an example is not the user's.
void MainWindow::remember_machine() {
  const Inputs& inputs = state_.inputs();
  const QStringList machine = machine_of(inputs);
  const std::vector<Example> all = examples();
  const bool is_of_example =
      std::any_of(all.begin(), all.end(), [&](const Example& each) { return machine_of(each.inputs) == machine; });
  if (inputs.kept || machine.isEmpty() || is_of_example) return;
  settings_.set_machine(machine);
  start_->set_machine(machine);
}

void MainWindow::ask_for_file() {
  const QString path = QFileDialog::getOpenFileName(
      this, tr("Open"), {}, tr("Models, plans, projects and memory snapshots (*.json *.pickle *.pkl);;All files (*)"));
  if (!path.isEmpty()) open_file(path);
}

bool MainWindow::save_project_as(const QString& path) {
  const Result<void> written = write_project(path.toStdString(), state_.inputs());
  if (!written) {
    state_.report_errors(written.error());
    return false;
  }
  saved_ = state_.inputs();
  set_current_file(path);
  settings_.add_recent_file(path);
  recovery_.drop();
  log(tr("Saved %1").arg(path));
  return true;
}

bool MainWindow::save_project() {
  return file_.isEmpty() ? ask_and_save_project() : save_project_as(file_);
}

bool MainWindow::ask_and_save_project() {
  const QString ending = QString::fromUtf8(kProjectEnding.data(), static_cast<qsizetype>(kProjectEnding.size()));
  QString path = QFileDialog::getSaveFileName(this, tr("Save project"), file_, tr("Projects (*%1)").arg(ending));
  if (path.isEmpty()) return false;
  if (!path.endsWith(".json")) path += ending;
  return save_project_as(path);
}

void MainWindow::save_plan() {
  const SnapshotPtr shown = state_.snapshot();
  if (!shown) return;
  const QString path =
      QFileDialog::getSaveFileName(this, tr("Save plan"), "plan.fsdp-plan.json", tr("Plans (*.fsdp-plan.json *.json)"));
  if (path.isEmpty()) return;
  const auto written = write_file_atomically(path.toStdString(), to_text(plan_file_of(*shown)), Overwrite::Allow);
  if (written) {
    log(tr("Saved %1").arg(path));
  } else {
    state_.report_errors(written.error());
  }
}

void MainWindow::set_current_file(const QString& path) {
  file_ = path;
  show_title();
}

void MainWindow::show_title() {
  QString name = file_.isEmpty() ? text_of(state_.inputs().model) : QFileInfo(file_).fileName();
  // A plan is identified by its file; its model stands in brackets.
  if (file_.isEmpty() && state_.inputs().kept && !opened_.isEmpty()) {
    name = tr("%1 (%2)").arg(QFileInfo(opened_).fileName(), QFileInfo(text_of(state_.inputs().model)).fileName());
  }
  if (name.isEmpty()) name = tr("Start");
  if (shows_recording_) name = QFileInfo(recording_->path()).fileName();
  setWindowTitle(name + "[*] — fsdp-plan explorer");
  setWindowModified(state_.has_model() && !(state_.inputs() == saved_));
}

void MainWindow::show_recent() {
  const QStringList files = settings_.recent_files();
  start_->show_recent(files);
  recent_menu_->clear();
  for (const QString& path : files) {
    QAction* action = recent_menu_->addAction(QFileInfo(path).fileName());
    action->setToolTip(path);
    connect(action, &QAction::triggered, this, [this, path] { open_file(path); });
  }
  recent_menu_->setEnabled(!files.isEmpty());
}

bool MainWindow::may_discard() {
  // Without a screen nobody could answer; the autosave has the work.
  if (!isWindowModified() || !isVisible()) return true;
  const auto answer = QMessageBox::question(this, tr("Unsaved changes"), tr("Save your changes?"),
                                            QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel);
  if (answer == QMessageBox::Cancel) return false;
  return answer == QMessageBox::Discard || save_project();
}

// A state equal to the saved one needs no recovery.
void MainWindow::keep_for_recovery() {
  if (isWindowModified()) {
    autosave_timer_.start();
  } else {
    autosave_timer_.stop();
    recovery_.drop();
  }
}

void MainWindow::autosave() {
  if (!isWindowModified()) return;
  const Result<void> written = recovery_.keep(state_.inputs());
  if (!written) log(errors_text(written.error()));
}

void MainWindow::offer_recovery() {
  for (const LeftBehind& left : left_behind()) {
    const Result<Inputs> inputs = read_project(left.path.toStdString());
    if (!inputs) {
      // The file may be all that is left of the user's work.
      const QString kept = left.path + ".broken";
      QFile::remove(kept);
      QFile::rename(left.path, kept);
      log(tr("The unsaved work cannot be read; it is in %1.").arg(kept));
      log(errors_text(inputs.error()));
      continue;
    }
    QMessageBox box(QMessageBox::Question, tr("Recover"),
                    tr("The program ended with unsaved changes of %1. Recover them?").arg(text_of(inputs->model)),
                    QMessageBox::Yes | QMessageBox::No | QMessageBox::Cancel, this);
    box.setInformativeText(tr("Last changed %1.").arg(QFileInfo(left.path).lastModified().toString(Qt::ISODate)));
    box.button(QMessageBox::Yes)->setText(tr("&Recover"));
    box.button(QMessageBox::No)->setText(tr("&Discard"));
    box.button(QMessageBox::Cancel)->setText(tr("Ask me &later"));
    const int answer = box.exec();
    if (answer == QMessageBox::Yes) {
      saved_ = {};
      state_.open(*inputs);
      // Saves under this window's name before the other file is removed.
      autosave();
    }
    if (answer == QMessageBox::Yes || answer == QMessageBox::No) QFile::remove(left.path);
    if (answer == QMessageBox::Yes) return;
  }
}

void MainWindow::open_at_start(const QString& file, const GivenOptions& options) {
  if (file.isEmpty()) return;
  if (state_.has_model()) {
    log(tr("Recovered work is shown; %1 was not opened.").arg(file));
  } else {
    open_file(file, options);
  }
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
  if (event->mimeData()->hasUrls()) event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
  for (const QUrl& url : event->mimeData()->urls()) {
    if (!url.isLocalFile()) continue;
    open_file(url.toLocalFile());
    return;
  }
}

}  // namespace fsdp::gui
