#include "gui/state/settings.h"

#include <QFileInfo>

namespace fsdp::gui {

namespace {

constexpr int kMostRecent = 10;
/// Increase this if docks are added or removed, so that an older arrangement is not applied.
constexpr int kLayoutVersion = 2;

}  // namespace

ThemeChoice Settings::theme() const {
  const QString name = settings_.value("theme", "system").toString();
  return name == "light" ? ThemeChoice::Light : name == "dark" ? ThemeChoice::Dark : ThemeChoice::System;
}

void Settings::set_theme(ThemeChoice choice) {
  settings_.setValue("theme", choice == ThemeChoice::Light ? "light" : choice == ThemeChoice::Dark ? "dark" : "system");
}

QStringList Settings::recent_files() const {
  QStringList files = settings_.value("recent").toStringList();
  files.removeIf([](const QString& path) { return !QFileInfo::exists(path); });
  return files;
}

void Settings::add_recent_file(const QString& path) {
  QStringList files = recent_files();
  const QString full = QFileInfo(path).absoluteFilePath();
  files.removeAll(full);
  files.prepend(full);
  settings_.setValue("recent", QVariant(files.mid(0, kMostRecent)));
}

QStringList Settings::machine() const {
  return settings_.value("machine").toStringList();
}

void Settings::set_machine(const QStringList& options) {
  settings_.setValue("machine", options);
}

QByteArray Settings::geometry() const {
  return settings_.value("window/version").toInt() == kLayoutVersion ? settings_.value("window/geometry").toByteArray()
                                                                     : QByteArray();
}

QByteArray Settings::layout() const {
  return settings_.value("window/version").toInt() == kLayoutVersion ? settings_.value("window/layout").toByteArray()
                                                                     : QByteArray();
}

bool Settings::has_own_sizes() const {
  return !layout().isEmpty() && settings_.value("window/own_sizes").toBool();
}

void Settings::save_window(const QByteArray& geometry, const QByteArray& layout, bool has_own_sizes) {
  settings_.setValue("window/version", kLayoutVersion);
  settings_.setValue("window/geometry", geometry);
  settings_.setValue("window/layout", layout);
  settings_.setValue("window/own_sizes", has_own_sizes);
}

}  // namespace fsdp::gui
