#pragma once

// Unsaved work, in case the program crashes. Every window saves its own in its own file, under a lock that ends with
// the process. So a second window leaves the file alone, and a later start knows that no process uses it.

#include <QLockFile>
#include <QString>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "gui/state/inputs.h"

namespace fsdp::gui {

class Recovery {
 public:
  /// Uses the program's own folder of the user.
  Recovery();

  /// The file of this window's work; no other window of any process has the same.
  const QString& path() const { return path_; }
  /// Saves the newest state. Errors: those of writing.
  Result<void> keep(const Inputs& inputs) const;
  /// Removes the file: there is no unsaved work.
  void drop() const;

 private:
  QString path_;
  std::unique_ptr<QLockFile> lock_;
};

/// Work of an ended process, and the lock by which this process now owns it.
struct LeftBehind {
  QString path;
  std::unique_ptr<QLockFile> lock;
};

/// The newest first. Does not include the work of open windows.
std::vector<LeftBehind> left_behind();

}  // namespace fsdp::gui
