#pragma once

// Unsaved work, in case the program ends without a goodbye. Every window keeps its own in a file of its own, under a
// lock that ends with the process: so a second window leaves it alone, and a later start knows that nobody uses
// it.

#include <QLockFile>
#include <QString>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "gui/state/inputs.h"

namespace fsdp::gui {

class Recovery {
 public:
  /// In the program's own folder of the user.
  Recovery();

  /// Where this window's work is kept; no other window of any process has the same.
  const QString& path() const { return path_; }
  /// Keeps the newest state. Errors: those of writing.
  Result<void> keep(const Inputs& inputs) const;
  /// There is nothing that would be lost.
  void drop() const;

 private:
  QString path_;
  std::unique_ptr<QLockFile> lock_;
};

/// Work of a process that has ended, and the lock by which this one has it now.
struct LeftBehind {
  QString path;
  std::unique_ptr<QLockFile> lock;
};

/// The newest first. Work of windows that are still open is not among it.
std::vector<LeftBehind> left_behind();

}  // namespace fsdp::gui
