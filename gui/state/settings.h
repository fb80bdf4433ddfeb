#pragma once

// State that survives the end of the program: theme, recent files, the arrangement of the window.

#include <QByteArray>
#include <QSettings>
#include <QStringList>

#include "gui/theme/theme.h"

namespace fsdp::gui {

class Settings {
 public:
  ThemeChoice theme() const;
  void set_theme(ThemeChoice choice);

  /// The newest first, at most ten; files that no longer exist are left out.
  QStringList recent_files() const;
  void add_recent_file(const QString& path);

  /// The machine of the last searched plan, as options: {"--gpu=H100 SXM", "--gpus=8"}. Empty before the first search.
  QStringList machine() const;
  void set_machine(const QStringList& options);

  /// The geometry of the window. Empty if another version saved it.
  QByteArray geometry() const;
  QByteArray layout() const;
  /// Whether the user moved the edges of the docks.
  bool has_own_sizes() const;
  void save_window(const QByteArray& geometry, const QByteArray& layout, bool has_own_sizes);

 private:
  mutable QSettings settings_;
};

}  // namespace fsdp::gui
