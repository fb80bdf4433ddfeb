// What a run left behind beside a prediction: only what it knows, and only of what it ran on.

#include <gtest/gtest.h>

#include <QLabel>
#include <QPushButton>
#include <QTemporaryDir>
#include <fstream>

#include "core/base/json_document.h"
#include "core/formats/trace_json.h"
#include "core/report/compare.h"
#include "gui/overlay/overlay_reader.h"
#include "gui/panels/comparison_panel.h"
#include "gui/window/main_window.h"
#include "render/result_json.h"
#include "replay/export_step.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using test::small_inputs;
using test::wait_until_idle;

class Measured : public testing::Test {
 protected:
  void SetUp() override {
    state_.open(small_inputs());
    ASSERT_TRUE(wait_until_idle(state_));
  }
  const Snapshot& shown() const { return *state_.snapshot(); }

  std::string write(const QString& name, const std::string& text) {
    const std::string path = folder_.filePath(name).toStdString();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  /// A report of `execute` on CPU, whose own comparison says that 12 MiB were predicted and measured.
  std::string report_of_cpu() {
    StepReport report = shown().report;
    report.kind = "measured";
    report.gpu = "CPU";
    report.memory.peaks = {.live = Bytes(12 << 20), .allocated = Bytes(-1), .reserved = Bytes(-1), .device = Bytes(-1)};
    std::string text = render::to_json(report, nullptr);
    const std::string own =
        R"({ "comparison": {"terms": [{"name": "live peak", "unit": "bytes", "predicted": 12582912, "measured": )"
        R"(12582912, "difference": 0, "relative": 0}, {"name": "all_gather count", "unit": "count", "predicted": 6, )"
        R"("measured": 6, "difference": 0, "relative": 0}], "notes": []},)";
    return write("report.json", text.replace(text.find('{'), 1, own));
  }
  Overlay read(const std::string& path) const {
    auto overlay = read_overlay(path, {}, {});
    EXPECT_TRUE(overlay.has_value()) << (overlay ? "" : to_string(overlay.error().front()));
    return overlay ? *overlay : Overlay();
  }

  QTemporaryDir folder_;
  AppState state_{test::library()};
};

TEST_F(Measured, RunOnCpuComparesAsTheCommandDoes) {
  const Overlay overlay = read(report_of_cpu());
  ASSERT_TRUE(overlay.own.has_value());
  EXPECT_TRUE(was_on_cpu(overlay));
  ASSERT_NE(shown().report.memory.peaks.live, Bytes(12 << 20)) << "the prediction for a GPU is another";
  const MeasuredComparison measured = measured_figures(shown(), overlay);
  ASSERT_EQ(measured.figures.size(), 2U);
  for (const ComparedFigure& figure : measured.figures) EXPECT_FALSE(figure.differs()) << figure.name.toStdString();
  ASSERT_TRUE(measured.live_peak.has_value());
  EXPECT_EQ(measured.live_peak->difference(), 0);
  ASSERT_FALSE(measured.notes.empty());
  EXPECT_TRUE(measured.notes.join(' ').contains("this machine's CPU over Gloo"));
}

TEST_F(Measured, VerdictLineAgreesWithTheTable) {
  MainWindow window(test::library());
  window.state().open(small_inputs());
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.load_measured(QString::fromStdString(report_of_cpu()));
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.state().measured() != nullptr; }, test::kPatience));
  const QString said = window.findChild<QPushButton*>("binding_moment")->accessibleName();
  EXPECT_TRUE(said.contains("measured on CPU: live peak 12.0 MiB, exactly as predicted for CPU")) << said.toStdString();
  EXPECT_FALSE(said.contains("off")) << said.toStdString();
}

TEST_F(Measured, RunOfAnotherPlanIsNoted) {
  Overlay overlay = read(report_of_cpu());
  overlay.plan = shown().report.plan;
  const auto says_another = [&] {
    return measured_figures(shown(), overlay).notes.join(' ').contains("different plan");
  };
  EXPECT_FALSE(says_another());
  overlay.plan->cpu_offload = !overlay.plan->cpu_offload;
  EXPECT_TRUE(says_another());
}

TEST_F(Measured, SnapshotComparesOnlyItsOwnFigures) {
  const Overlay overlay = read(write("own.pickle", replay::to_memory_snapshot(shown().curves)));
  EXPECT_FALSE(overlay.knows_traffic);
  const MeasuredComparison measured = measured_figures(shown(), overlay);
  ASSERT_FALSE(measured.figures.empty());
  for (const ComparedFigure& figure : measured.figures) {
    EXPECT_FALSE(figure.name.contains("all_gather")) << figure.name.toStdString();
    EXPECT_FALSE(figure.name.contains("reduce_scatter")) << figure.name.toStdString();
    EXPECT_FALSE(figure.name.contains("payload")) << figure.name.toStdString();
    EXPECT_FALSE(figure.name.contains("parameters")) << figure.name.toStdString();
  }
  EXPECT_FALSE(measured.is_of_another) << measured.notes.join('\n').toStdString();
  EXPECT_TRUE(measured.live_peak.has_value());
}

TEST_F(Measured, SnapshotOfAnotherModelIsNoted) {
  const std::string path = write("mlp.pickle", replay::to_memory_snapshot(shown().curves));
  AppState other(test::library());
  other.open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(other));
  const MeasuredComparison measured = measured_figures(*other.snapshot(), read(path));
  EXPECT_TRUE(measured.is_of_another);
  EXPECT_TRUE(measured.notes.join(' ').contains("another model")) << measured.notes.join('\n').toStdString();
  EXPECT_TRUE(measured.notes.join(' ').contains(QString::fromStdString(other.snapshot()->report.model)));
}

TEST_F(Measured, TraceOfAGlooRunHasItsLanesAndNoNccl) {
  Trace trace = replay::trace_of(shown().report, shown().curves);
  trace.gpu = "CPU";
  trace.kind = "measured";
  const Overlay overlay = read(write("trace.json", to_chrome_trace(trace)));
  EXPECT_TRUE(overlay.knows_traffic);
  int collectives = 0;
  for (const StreamEvent& event : overlay.events) {
    EXPECT_EQ(event.name.find("nccl"), std::string::npos) << event.name;
    collectives += event.stream == Stream::AllGather && event.name == "gloo:all_gather(measured)" ? 1 : 0;
  }
  EXPECT_GT(collectives, 0);
}

}  // namespace
}  // namespace fsdp::gui
