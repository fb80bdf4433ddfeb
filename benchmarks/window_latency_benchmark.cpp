// How long the explorer lets somebody wait, without a display: from opening a model to its first charts, to its best
// plan and to its whole answer, and from one move of a slider to the verdict that is painted for it. Milliseconds of
// wall time, in brackets those of the CPU, which say more where others use the machine.
//
//   window_latency_benchmark [MODEL...]     those of the table in docs/performance.md where none is named
//
// Bars: a verdict within 100 ms of a move for models of up to 8 B parameters, first charts within 1 s for the largest.
// No test is decided by these.

#include <QApplication>
#include <QElapsedTimer>
#include <QEventLoop>
#include <QSlider>
#include <QStandardPaths>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "core/library/model_library.h"
#include "gui/window/main_window.h"

namespace {

using namespace fsdp;
using namespace fsdp::gui;
using planner::PlanChoice;

struct Case {
  const char* model;
  int gpus;
  int nodes;
  const char* gpu;
};

constexpr Case kCases[] = {{"gpt2", 8, 1, "A100 80GB SXM"},    {"qwen3_tts", 4, 1, "L4"},
                           {"llama3_1_8b", 8, 1, "H100 SXM"},  {"qwen3_8b", 4, 1, "RTX 4090"},
                           {"llama3_1_70b", 8, 4, "H100 SXM"}, {"llama3_1_405b", 8, 64, "H100 SXM"},
                           {"qwen3_30b_a3b", 8, 8, "H100 SXM"}};

/// Tells when a widget was painted.
class Paints : public QObject {
 public:
  explicit Paints(QWidget& widget) { widget.installEventFilter(this); }
  int count = 0;

 protected:
  bool eventFilter(QObject* /*watched*/, QEvent* event) override {
    if (event->type() == QEvent::Paint) ++count;
    return false;
  }
};

/// Handles events until something is so; the longest single turn of the loop, in which the window answers nobody.
template <class Condition>
double run_until(const Condition& condition) {
  double longest = 0;
  QElapsedTimer turn;
  while (!condition()) {
    turn.start();
    QCoreApplication::processEvents(QEventLoop::AllEvents);
    longest = std::max(longest, static_cast<double>(turn.nsecsElapsed()) / 1e6);
    if (!condition()) QCoreApplication::processEvents(QEventLoop::WaitForMoreEvents, 2);
  }
  return longest;
}

/// Memory of this process, in MB.
double resident() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kilobytes = 0;
    if (word == "VmRSS:" && file >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

/// Milliseconds of a clock, and of the CPU in all threads.
struct Latency {
  double wall = 0;
  double cpu = 0;
};

class Watch {
 public:
  Watch() { timer_.start(); }
  Latency passed() const {
    return {static_cast<double>(timer_.nsecsElapsed()) / 1e6,
            1e3 * static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC};
  }

 private:
  QElapsedTimer timer_;
  std::clock_t begin_ = std::clock();
};

/// From each move of a slider, there and back again, to its painted verdict.
std::vector<Latency> moves_of(MainWindow& window, PlanChoice choice, QWidget& verdict, double& longest) {
  std::vector<Latency> times;
  auto* slider = window.controls().control(choice)->findChild<QSlider*>();
  Paints paints(verdict);
  const int first = slider->value();
  for (const int direction : {1, 1, 1, -1, -1, -1}) {
    const int next = std::clamp(slider->value() + direction, slider->minimum(), slider->maximum());
    if (next == slider->value()) continue;
    const Watch watch;
    const SnapshotPtr before = window.state().snapshot();
    slider->setValue(next);
    longest = std::max(longest, run_until([&] { return window.state().snapshot()->id > before->id; }));
    const int painted = paints.count;
    longest = std::max(longest, run_until([&] { return paints.count > painted; }));
    times.push_back(watch.passed());
  }
  slider->setValue(first);
  run_until([&] { return !window.state().is_busy(); });
  return times;
}

void measure(const Case& each, const std::string& library) {
  MainWindow window(library);
  window.resize(1360, 860);
  window.show();
  run_until([&] { return window.isVisible(); });
  Inputs inputs;
  inputs.model = each.model;
  inputs.choices = {.gpus = each.gpus, .nodes = each.nodes, .gpu_name = each.gpu};
  const Watch watch;
  window.state().open(inputs);
  double longest = run_until([&] { return window.state().snapshot() != nullptr; });
  Paints paints(*window.findChild<QWidget*>("memory"));
  longest = std::max(longest, run_until([&] { return paints.count > 0; }));
  const Latency first = watch.passed();
  longest = std::max(longest, run_until([&] { return !is_before_search(*window.state().snapshot()); }));
  const Latency best = watch.passed();
  longest = std::max(longest, run_until([&] { return !window.state().is_busy(); }));
  const Latency whole = watch.passed();
  double moving = 0;
  auto& face = *window.findChild<QWidget*>("verdict");
  std::vector<Latency> moves = moves_of(window, PlanChoice::Memory, face, moving);
  for (const Latency& more : moves_of(window, PlanChoice::Batch, face, moving)) moves.push_back(more);
  std::sort(moves.begin(), moves.end(), [](const Latency& a, const Latency& b) { return a.wall < b.wall; });
  const Latency median = moves.empty() ? Latency() : moves[moves.size() / 2];
  const Latency most = moves.empty() ? Latency() : moves.back();
  std::printf("%-14s %2d x %d", each.model, each.nodes, each.gpus);
  const auto print = [](const char* what, const Latency& time) {
    std::printf("  %s %.0f (%.0f)", what, time.wall, time.cpu);
  };
  print("first charts", first);
  print("best plan", best);
  print("whole answer", whole);
  print("move to verdict", median);
  print("at most", most);
  std::printf("  longest turn %.0f, moving %.0f  %.0f MB\n", longest, moving, resident());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  const QApplication application(argc, argv);
  QStandardPaths::setTestModeEnabled(true);
  QApplication::setApplicationName("fsdp-plan-gui-latency");
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  for (const Case& each : kCases) {
    const bool is_wanted = wanted.empty() || std::find(wanted.begin(), wanted.end(), each.model) != wanted.end();
    if (is_wanted) measure(each, library_of_process());
  }
  return 0;
}
