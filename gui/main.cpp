// fsdp-plan-gui: the what-if explorer.

#include <QApplication>
#include <QCommandLineParser>
#include <QIcon>
#include <QSettings>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "core/library/model_library.h"
#include "core/version.h"
#include "gui/state/inputs.h"
#include "gui/theme/style.h"
#include "gui/window/main_window.h"
#include "gui/window/screenshot.h"
#include "planner/search/objective.h"
#include "planner/space/choice_table.h"
#include "render/choice_options.h"
#include "render/read_value.h"

namespace {

using fsdp::gui::ThemeChoice;

/// If Qt finds no display it ends the program, with advice that does not help.
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
  // Qt's hints on plugins belong to the message above.
  if (!text.startsWith("could not connect to display") && !text.contains("platform plugin")) {
    std::fputs((text + "\n").toUtf8().constData(), stderr);
  }
  if (type == QtFatalMsg) std::abort();
}

/// Settings needed before the application exists: a picture and a help text need no display.
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

int input_error(const fsdp::Errors& errors) {
  for (const fsdp::Error& error : errors) std::fputs(("error: " + fsdp::to_string(error) + "\n").c_str(), stderr);
  return 2;
}

/// " Did you mean --gpus?" for an option that is probably a slip. Empty if none is near.
QString nearest_option(const QStringList& unknown) {
  if (unknown.isEmpty()) return {};
  std::vector<std::string_view> known = {"--theme",    "--scale",    "--size",      "--view",
                                         "--measured", "--baseline", "--objective", "--screenshot"};
  for (const fsdp::planner::ChoiceRow& choice : fsdp::planner::kChoiceRows) {
    for (const std::string_view name : fsdp::split(choice.names, ',')) known.push_back(name);
  }
  const auto nearest = fsdp::nearest_name("--" + unknown.front().toStdString(), known);
  return nearest ? " Did you mean " + QString::fromStdString(*nearest) + "?" : QString();
}

int usage_error(const QString& text) {
  std::fputs(("fsdp-plan-gui: " + text + "\nRun \"fsdp-plan-gui --help\" for all options.\n").toUtf8().constData(),
             stderr);
  return 2;
}

/// The parsed command line.
struct Asked {
  QString file;
  fsdp::gui::GivenOptions options;
  bool has_theme = false;
  ThemeChoice theme = ThemeChoice::System;
  bool has_size = false;
  QSize size;
  QString view;
  QString measured;
  QString baseline;
  QString screenshot;  ///< Empty to show a window.
  bool is_searching = false;
  bool has_palette = false;
};

/// Reads the options of the plan after those of the window. Prints what is wrong and returns the exit code; nullopt if
/// nothing is.
std::optional<int> read_options(const QCommandLineParser& parser, const QCommandLineOption& objective,
                                const fsdp::render::ChoiceTexts& texts, Asked& asked) {
  asked.options.texts = texts;
  if (parser.isSet(objective)) {
    const auto read = fsdp::render::read_name(parser.value(objective).toStdString(),
                                              fsdp::planner::kSearchObjectiveTable, "--objective");
    if (!read) return input_error(read.error());
    asked.options.objective = *read;
  }
  // Errors of a single option are printed before a window opens.
  if (const auto read = fsdp::gui::with_options({}, asked.options); !read) return input_error(read.error());
  if (asked.file.isEmpty() && !asked.options.empty()) {
    return usage_error("Name a model or a file as well: fsdp-plan-gui qwen3_tts --gpus 4 --mem 16G.");
  }
  return std::nullopt;
}

/// Reads how the window looks. Prints what is wrong and returns the exit code; nullopt if nothing is.
std::optional<int> read_looks(const QString& theme, const QString& size, Asked& asked) {
  if (!QStringList{"", "light", "dark", "system"}.contains(theme)) {
    return usage_error(QString("\"%1\" is not a theme. Write light, dark or system.").arg(theme));
  }
  asked.theme = theme == "dark" ? ThemeChoice::Dark : theme == "light" ? ThemeChoice::Light : ThemeChoice::System;
  const QStringList sides = size.split('x');
  asked.size = QSize(sides.value(0).toInt(), sides.value(1).toInt());
  if (sides.size() != 2 || asked.size.width() < 200 || asked.size.height() < 200) {
    return usage_error(QString("\"%1\" is not a size. Write it as 1360x860.").arg(size));
  }
  return std::nullopt;
}

/// Reads the command line. Prints what is wrong and returns the exit code; nullopt if nothing is.
std::optional<int> read_command_line(Asked& asked) {
  QCommandLineParser parser;
  parser.setApplicationDescription(
      "See what FSDP training of a model costs, and what a change would change.\nOptions of fsdp-plan for the model, "
      "the GPUs and the plan work here, too:\n\n  fsdp-plan-gui qwen3_tts --gpus 4 --mem 16G");
  parser.addHelpOption();
  parser.addVersionOption();
  parser.addPositionalArgument("FILE", "Model, plan or project to open, or the name of a shipped model", "[FILE]");
  const QCommandLineOption objective("objective", "The goal of the search: time, memory or tokens", "name");
  const QCommandLineOption screenshot("screenshot", "Write a picture of the window to <file> and end", "file");
  const QCommandLineOption theme("theme", "light, dark or system", "name");
  const QCommandLineOption scale("scale", "Pixels for each point, such as 2", "factor", "1");
  const QCommandLineOption size("size", "Size of the window, such as 1360x860", "WxH", "1360x860");
  const QCommandLineOption view("view", "The view to show: plans, peak, step-by-step, ...", "name");
  const QCommandLineOption measured("measured", "Lay a report, a trace or a memory snapshot over it", "file");
  const QCommandLineOption baseline("baseline", "Compare with the answer of <file>", "file");
  const QCommandLineOption searching("searching", "In a picture: as soon as there is a first answer");
  const QCommandLineOption palette("palette", "In a picture: at most 256 colors");
  parser.addOptions({objective, screenshot, theme, scale, size, view, measured, baseline, searching, palette});
  std::vector<std::string> words;
  for (const QString& word : QApplication::arguments().mid(1)) words.push_back(word.toStdString());
  const auto choices = fsdp::render::take_choices(words);
  if (!choices) return input_error(choices.error());
  QStringList rest = {QApplication::arguments().value(0)};
  for (const std::string& word : choices->rest) rest << QString::fromStdString(word);
  if (!parser.parse(rest)) return usage_error(parser.errorText() + nearest_option(parser.unknownOptionNames()));
  if (parser.isSet("help")) parser.showHelp();
  if (parser.isSet("version")) parser.showVersion();
  if (parser.positionalArguments().size() > 1) return usage_error("One file at a time.");
  asked.file = parser.positionalArguments().value(0);
  asked.has_theme = parser.isSet(theme);
  asked.has_size = parser.isSet(size);
  asked.view = parser.value(view);
  asked.measured = parser.value(measured);
  asked.baseline = parser.value(baseline);
  asked.screenshot = parser.value(screenshot);
  asked.is_searching = parser.isSet(searching);
  asked.has_palette = parser.isSet(palette);
  if (const auto code = read_options(parser, objective, choices->texts, asked)) return code;
  return read_looks(parser.value(theme), parser.value(size), asked);
}

}  // namespace

int main(int argc, char** argv) {
  prepare(argc, argv);
  QApplication application(argc, argv);
  QApplication::setStyle(new fsdp::gui::Style);
  name_application();
  Asked asked;
  if (const auto code = read_command_line(asked)) return *code;
  const std::string library = fsdp::library_of_process();
  if (!asked.screenshot.isEmpty()) {
    // The picture must not depend on the user's settings, nor on a previous picture.
    const QTemporaryDir settings;
    QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, settings.path());
    QStandardPaths::setTestModeEnabled(true);
    QApplication::setApplicationName("fsdp-plan-gui-screenshot");
    const fsdp::gui::ScreenshotRequest request{
        .output = asked.screenshot,
        .file = asked.file,
        .options = asked.options,
        .baseline = asked.baseline,
        .measured = asked.measured,
        .is_searching = asked.is_searching,
        .view = asked.view,
        .size = asked.size,
        .has_palette = asked.has_palette,
        .theme = asked.theme == ThemeChoice::System ? ThemeChoice::Light : asked.theme,
    };
    return fsdp::gui::take_screenshot(request, library);
  }
  fsdp::gui::MainWindow window(library);
  if (asked.has_theme) window.set_theme(asked.theme);
  if (asked.has_size) window.resize(asked.size);
  window.show();
  window.offer_recovery();
  window.open_at_start(asked.file, asked.options);
  if (!asked.view.isEmpty()) window.show_view(asked.view);
  if (!asked.baseline.isEmpty()) window.compare_with(asked.baseline);
  if (!asked.measured.isEmpty()) window.load_measured(asked.measured);
  return QApplication::exec();
}
