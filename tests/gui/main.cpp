// The tests of the window need a QApplication, and no display.

#include <gtest/gtest.h>

#include <QApplication>
#include <QSettings>
#include <QStandardPaths>
#include <QTemporaryDir>

#include "gui/theme/style.h"

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  // Settings and autosaves of the person who runs the tests stay as they are.
  QStandardPaths::setTestModeEnabled(true);
  // Several run at once, and each begins without a machine that was used before.
  const QTemporaryDir settings;
  QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, settings.path());
  QApplication application(argc, argv);
  QApplication::setStyle(new fsdp::gui::Style);
  QApplication::setOrganizationName("fsdp-plan");
  QApplication::setApplicationName("fsdp-plan-gui-test");
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
