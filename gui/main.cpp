// fsdp-plan-gui: the what-if explorer.

#include <QApplication>
#include <QCommandLineParser>
#include <QIcon>
#include <QSettings>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <cstdio>
#include <cstdlib>

#include "core/library/model_library.h"
#include "core/version.h"
#include "gui/theme/style.h"
#include "gui/window/main_window.h"
#include "gui/window/screenshot.h"

namespace {

using fsdp::gui::ThemeChoice;

/// Qt ends the program when it finds no display, with advice that helps nobody.
void explain_missing_display(QtMsgType type, const QMessageLogContext& /*context*/, const QString& text) {
  if (type == QtFatalMsg && text.contains("platform plugin")) {
    std::fputs(
        "fsdp-plan-gui: There is no display to show a window on.\n"
        "  fsdp-plan-gui -platform vnc                    serves the window to a VNC viewer, at port 5900\n"
        "  fsdp-plan-gui --screenshot out.png plan.json   writes a picture\n"
        "  fsdp-plan qwen3_tts --gpus 4 --mem 16G         answers the same in the terminal\n",
        stderr);
    std::_Exit(2);
  }
  // Its hints on plugins belong to the text above.
  if (!text.startsWith("could not connect to display") && !text.contains("platform plugin")) {
    std::fputs((text + "\n").toUtf8().constData(), stderr);
  }
  if (type == QtFatalMsg) std::abort();
}

/// What must be known before there is an application: a picture and a help text need no display.
void prepare(int argc, char** argv) {
  qInstallMessageHandler(explain_missing_display);
  for (int i = 1; i < argc; ++i) {
    const QByteArray word = argv[i];
    const bool is_text = word == "--help" || word == "-h" || word == "--version" || word == "-v";
    if ((is_text || word.startsWith("--screenshot")) && qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) {
      qputenv("QT_QPA_PLATFORM", "offscreen");
    }
    if (word == "--scale" && i + 1 < argc) qputenv("QT_SCALE_FACTOR", argv[i + 1]);
    if (word.startsWith("--scale=")) qputenv("QT_SCALE_FACTOR", word.mid(8));
  }
}

void name_application() {
  QApplication::setOrganizationName("fsdp-plan");
  QApplication::setApplicationName("fsdp-plan-gui");
  QApplication::setApplicationVersion(QString::fromStdString(std::string(fsdp::kVersion)));
  QApplication::setDesktopFileName("local.fsdp_plan.explorer");
  QApplication::setWindowIcon(QIcon(":/icons/fsdp-plan-gui.svg"));
}

int usage_error(const QString& text) {
  std::fputs(("fsdp-plan-gui: " + text + "\nRun \"fsdp-plan-gui --help\" for all options.\n").toUtf8().constData(),
             stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  prepare(argc, argv);
  QApplication application(argc, argv);
  QApplication::setStyle(new fsdp::gui::Style);
  name_application();

  QCommandLineParser parser;
  parser.setApplicationDescription("See what FSDP training of a model costs, and what a change would change.");
  parser.addHelpOption();
  parser.addVersionOption();
  parser.addPositionalArgument("FILE", "Model, plan or project to open, or the name of a shipped model", "[FILE]");
  const QCommandLineOption screenshot("screenshot", "Write a picture of the window to <file> and end", "file");
  const QCommandLineOption theme("theme", "light, dark or system", "name");
  const QCommandLineOption scale("scale", "Pixels for each point, such as 2", "factor", "1");
  const QCommandLineOption size("size", "Size of the window, such as 1360x860", "WxH", "1360x860");
  const QCommandLineOption view("view", "What to show in front", "name");
  const QCommandLineOption measured("measured", "Lay a report, a trace or a memory snapshot over it", "file");
  const QCommandLineOption baseline("baseline", "Compare with what <file> answers", "file");
  const QCommandLineOption searching("searching", "In a picture: as soon as there is a first answer");
  const QCommandLineOption palette("palette", "In a picture: at most 256 colors");
  parser.addOptions({screenshot, theme, scale, size, view, measured, baseline, searching, palette});
  parser.process(application);
  if (parser.positionalArguments().size() > 1) return usage_error("One file at a time.");
  const QString file = parser.positionalArguments().value(0);

  const QString theme_name = parser.value(theme);
  if (!QStringList{"", "light", "dark", "system"}.contains(theme_name)) {
    return usage_error(QString("\"%1\" is not a theme. Write light, dark or system.").arg(theme_name));
  }
  const ThemeChoice choice = theme_name == "dark"    ? ThemeChoice::Dark
                             : theme_name == "light" ? ThemeChoice::Light
                                                     : ThemeChoice::System;
  const QStringList sides = parser.value(size).split('x');
  const QSize wanted(sides.value(0).toInt(), sides.value(1).toInt());
  if (sides.size() != 2 || wanted.width() < 200 || wanted.height() < 200) {
    return usage_error(QString("\"%1\" is not a size. Write it as 1360x860.").arg(parser.value(size)));
  }
  const std::string library = fsdp::library_of_process();
  if (parser.isSet(screenshot)) {
    // The picture does not depend on who takes it, nor on what was opened for the one before.
    const QTemporaryDir settings;
    QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, settings.path());
    QStandardPaths::setTestModeEnabled(true);
    QApplication::setApplicationName("fsdp-plan-gui-screenshot");
    const fsdp::gui::ScreenshotRequest request{
        .output = parser.value(screenshot),
        .file = file,
        .baseline = parser.value(baseline),
        .measured = parser.value(measured),
        .is_searching = parser.isSet(searching),
        .view = parser.value(view),
        .size = wanted,
        .has_palette = parser.isSet(palette),
        .theme = choice == ThemeChoice::System ? ThemeChoice::Light : choice,
    };
    return fsdp::gui::take_screenshot(request, library);
  }
  fsdp::gui::MainWindow window(library);
  if (parser.isSet(theme)) window.set_theme(choice);
  if (parser.isSet(size)) window.resize(wanted);
  window.show();
  window.offer_recovery();
  window.open_at_start(file);
  if (parser.isSet(view)) window.show_view(parser.value(view));
  if (parser.isSet(baseline)) window.compare_with(parser.value(baseline));
  if (parser.isSet(measured)) window.load_measured(parser.value(measured));
  return QApplication::exec();
}
