// Files of the window: opening, saving, dropping, and what is kept in case the program ends without a goodbye.

#include <QApplication>
#include <QDragEnterEvent>
#include <QFile>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenu>
#include <QMessageBox>
#include <QMimeData>

#include "core/files.h"
#include "core/model_library.h"
#include "gui/main_window.h"
#include "gui/project_file.h"

namespace fsdp::gui {

namespace {

QString errors_text(const Errors& errors) {
  QStringList lines;
  for (const Error& error : errors) lines << text_of(to_string(error));
  return lines.join('\n');
}

/// A model says nothing about machines: these are only a place to start.
Inputs with_some_machine(Inputs inputs) {
  if (inputs.kept) return inputs;
  inputs = with_option(std::move(inputs), planner::Option::Gpus, "8");
  return with_option(std::move(inputs), planner::Option::Memory, "80G");
}

}  // namespace

bool MainWindow::open_file(const QString& path) {
  if (!may_discard()) return false;
  const std::vector<std::string> shipped = model_names(state_.library());
  const bool is_shipped = std::find(shipped.begin(), shipped.end(), path.toStdString()) != shipped.end();
  // A path in the state is whole, because a plan or a command may be used from another folder.
  const std::string name =
      is_shipped || !QFileInfo::exists(path) ? path.toStdString() : QFileInfo(path).absoluteFilePath().toStdString();
  const bool project = !is_shipped && QFileInfo::exists(path) && is_project(name);
  Result<Inputs> inputs = project ? read_project(name) : inputs_of_file(name, state_.library());
  if (inputs && !project && !inputs->kept) {
    const auto found = find_model_file(name, state_.library());
    if (found) {
      const auto spec = read_model_spec(*found);
      if (!spec) inputs = tl::unexpected(spec.error());
    }
  }
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
  if (!is_shipped) settings_.add_recent_file(path);
  set_current_file(project ? path : QString());
  saved_ = project ? *inputs : with_some_machine(*inputs);
  state_.open(saved_);
  return true;
}

void MainWindow::open_model(const QString& name) {
  open_file(name);
}

void MainWindow::open_example(int example) {
  const std::vector<Example> all = examples();
  if (example < 0 || example >= static_cast<int>(all.size()) || !may_discard()) return;
  set_current_file({});
  saved_ = all[static_cast<std::size_t>(example)].inputs;
  state_.open(saved_);
}

void MainWindow::ask_for_file() {
  const QString path =
      QFileDialog::getOpenFileName(this, tr("Open"), {}, tr("Models, plans and projects (*.json);;All files (*)"));
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
  QFile::remove(Settings::autosave_path());
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
  if (name.isEmpty()) name = tr("Start");
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
  // Without a screen nobody could answer; the autosave keeps what there is.
  if (!isWindowModified() || !isVisible()) return true;
  const auto answer = QMessageBox::question(this, tr("Unsaved changes"), tr("Save what you have changed?"),
                                            QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel);
  if (answer == QMessageBox::Cancel) return false;
  return answer == QMessageBox::Discard || save_project();
}

void MainWindow::autosave() {
  if (!isWindowModified()) return;
  const Result<void> written = write_project(Settings::autosave_path().toStdString(), state_.inputs());
  if (!written) log(errors_text(written.error()));
}

void MainWindow::offer_recovery() {
  const QString path = Settings::autosave_path();
  if (!QFileInfo::exists(path)) return;
  const Result<Inputs> inputs = read_project(path.toStdString());
  if (!inputs) {
    // It may be all that is left of somebody's work.
    const QString kept = path + ".broken";
    QFile::remove(kept);
    QFile::rename(path, kept);
    log(tr("The work that was not saved cannot be read; it is in %1.").arg(kept));
    log(errors_text(inputs.error()));
    return;
  }
  const auto answer = QMessageBox::question(
      this, tr("Recover"),
      tr("The program ended with unsaved changes of %1. Go on with them?").arg(text_of(inputs->model)));
  if (answer == QMessageBox::Yes) {
    saved_ = {};
    state_.open(*inputs);
  }
  QFile::remove(path);
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
