#include "gui/state/recovery.h"

#include <QCoreApplication>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QStandardPaths>
#include <utility>

#include "gui/state/project_file.h"

namespace fsdp::gui {

namespace {

QString folder_of_work() {
  const QString folder = QStandardPaths::writableLocation(QStandardPaths::AppDataLocation);
  QDir().mkpath(folder);
  return folder;
}

/// The lock of a file. A lock of a process that has ended counts as free, however young it is.
std::unique_ptr<QLockFile> lock_of(const QString& path) {
  auto lock = std::make_unique<QLockFile>(path + ".lock");
  lock->setStaleLockTime(0);
  return lock;
}

}  // namespace

Recovery::Recovery() {
  const QString folder = folder_of_work();
  // A number may belong to an ended process whose work still waits: then the next one is free.
  for (int number = 0; number < 1000; ++number) {
    path_ =
        QString("%1/autosave-%2-%3.fsdp-project.json").arg(folder).arg(QCoreApplication::applicationPid()).arg(number);
    if (QFileInfo::exists(path_)) continue;
    lock_ = lock_of(path_);
    // Without a lock (a folder that cannot be written) the work is not saved, and `keep` reports it.
    if (lock_->tryLock(0) || lock_->error() != QLockFile::LockFailedError) return;
  }
}

Result<void> Recovery::keep(const Inputs& inputs) const {
  return write_project(path_.toStdString(), inputs);
}

void Recovery::drop() const {
  QFile::remove(path_);
}

std::vector<LeftBehind> left_behind() {
  std::vector<LeftBehind> all;
  const QDir folder(folder_of_work());
  for (const QFileInfo& file : folder.entryInfoList({"autosave*.fsdp-project.json"}, QDir::Files, QDir::Time)) {
    auto lock = lock_of(file.filePath());
    if (lock->tryLock(0)) all.push_back({file.filePath(), std::move(lock)});
  }
  return all;
}

}  // namespace fsdp::gui
