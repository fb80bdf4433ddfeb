// What was measured, read back: traces, snapshots, reports, and files that are none of them.

#include "gui/overlay/overlay_reader.h"

#include <gtest/gtest.h>

#include <QImage>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <algorithm>
#include <fstream>

#include "gui/charts/export_chart.h"
#include "gui/charts/memory_timeline_widget.h"
#include "replay/export_step.h"
#include "tests/gui/chart_fixture.h"

namespace fsdp::gui {
namespace {

class Overlays : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    const std::string path = folder_.filePath(QString::fromStdString(name)).toStdString();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  QTemporaryDir folder_;
};

Result<Overlay> read(const std::string& path, const OverlayLimits& limits = {}) {
  return read_overlay(path, limits, {});
}

TEST_F(Overlays, ReadOurOwnTraceAsItWasWritten) {
  const SnapshotPtr snapshot = gpt2_snapshot();
  Trace trace = replay::trace_of(snapshot->report, snapshot->curves);
  trace.kind = "measured";
  const Result<Overlay> overlay = read(write("trace.json", to_chrome_trace(trace)));
  ASSERT_TRUE(overlay.has_value()) << to_string(overlay.error().front());
  EXPECT_NEAR(overlay->step.count(), snapshot->curves.step.count(), 1e-8);
  EXPECT_EQ(overlay->events.size(), snapshot->curves.events.size());
  const simulator::MemoryCurve& curve = *snapshot->curves.find(RunPhase::SteadyStep);
  EXPECT_EQ(*std::max_element(overlay->allocated.begin(), overlay->allocated.end()), curve.total[curve.peak()]);
  ASSERT_TRUE(overlay->report.has_value());
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    const auto k = static_cast<std::size_t>(kind);
    EXPECT_EQ(overlay->report->traffic.totals[k].count, snapshot->report.traffic.totals[k].count);
    EXPECT_EQ(overlay->report->traffic.totals[k].payload, snapshot->report.traffic.totals[k].payload);
  }
}

TEST_F(Overlays, ReadASnapshotWithItsCategories) {
  const SnapshotPtr snapshot = gpt2_snapshot();
  const Result<Overlay> overlay = read(write("step.pickle", replay::to_memory_snapshot(snapshot->curves)));
  ASSERT_TRUE(overlay.has_value()) << to_string(overlay.error().front());
  const simulator::MemoryCurve& curve = *snapshot->curves.find(RunPhase::SteadyStep);
  EXPECT_EQ(overlay->report->memory.peaks.live, Bytes(curve.total[curve.peak()]));
  EXPECT_EQ(overlay->report->memory.at_peak, curve.live_at(curve.peak()));
}

TEST_F(Overlays, ExtractTheLastWholeStepOfAKinetoTrace) {
  std::string text = R"({"schemaVersion": 1, "note": "a \"traceEvents\" [ in a string {", "traceEvents": [)";
  for (int step = 0; step < 3; ++step) {
    const std::string at = std::to_string(1000 * (step + 1));
    text += R"({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#)" + std::to_string(step) +
            R"(", "pid": 1, "tid": 1, "ts": )" + at + R"(, "dur": 900},)";
    text += R"({"ph": "X", "cat": "kernel", "name": "gemm {x}", "pid": 0, "tid": 7, "ts": )" + at + R"(, "dur": )" +
            std::to_string(100 + step) + "},";
    text +=
        R"({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "ts": )" + at +
        R"(, "dur": 50, "args": {"Out msg nelems": 1000, "In msg nelems": 250, "dtype": "BFloat16", "Group size": 4}},)";
    text += R"({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": )" + at +
            R"(, "args": {"Device Type": 1, "Total Allocated": )" + std::to_string(5000 + step) + "}},";
    text += R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": )" + at + R"(, "dur": 5},)";
  }
  text.back() = ']';
  const Result<Overlay> overlay = read(write("kineto.json", text + "}"));
  ASSERT_TRUE(overlay.has_value()) << to_string(overlay.error().front());
  EXPECT_NEAR(overlay->step.count(), 900e-6, 1e-12) << "the last step may be cut off, the one before is whole";
  ASSERT_EQ(overlay->events.size(), 2u) << "what ran on the CPU is left out";
  EXPECT_EQ(overlay->events[0].name, "gemm {x}");
  EXPECT_NEAR(overlay->events[0].end.count(), 101e-6, 1e-12);
  EXPECT_EQ(overlay->events[1].payload->bytes, Bytes(2000)) << "1000 elements of two bytes";
  EXPECT_EQ(overlay->allocated, (std::vector<std::int64_t>{5001}));
}

TEST_F(Overlays, RefuseUnusableFilesWithAReason) {
  const auto refusal = [&](const std::string& path, const OverlayLimits& limits = {}) {
    const Result<Overlay> overlay = read(path, limits);
    return overlay ? std::string("accepted") : to_string(overlay.error().front());
  };
  EXPECT_NE(refusal(folder_.filePath("none.json").toStdString()).find("no such file"), std::string::npos);
  EXPECT_NE(refusal(write("text.txt", "hello")).find("not a run report, trace"), std::string::npos);
  EXPECT_NE(refusal(write("empty.json", R"({"traceEvents": []})")).find("nothing that ran on a GPU"),
            std::string::npos);
  EXPECT_NE(refusal(write("other.json", R"({"a": [1, 2]})")).find("traceEvents"), std::string::npos);
  EXPECT_NE(refusal(write("cut.json", R"({"traceEvents": [{"ph": "X", "cat")")).find("nothing that ran"),
            std::string::npos);
  const std::string pickle = replay::to_memory_snapshot(gpt2_snapshot()->curves);
  EXPECT_NE(refusal(write("big.pickle", pickle), {.snapshot_bytes = 1000}).find("too large"), std::string::npos);
  EXPECT_NE(refusal(write("cut.pickle", pickle.substr(0, pickle.size() / 2))), "accepted");
  // cos\nsystem: a pickle that would call a function.
  EXPECT_NE(refusal(write("evil.pickle", std::string("\x80\x02") + "cos\nsystem\n.")).find("GLOBAL"),
            std::string::npos);
}

TEST_F(Overlays, LoadInTheBackground) {
  const std::string path = write("step.pickle", replay::to_memory_snapshot(gpt2_snapshot()->curves));
  OverlayLoader loader;
  QSignalSpy loaded(&loader, &OverlayLoader::loaded);
  QSignalSpy failed(&loader, &OverlayLoader::failed);
  loader.load(QString::fromStdString(path));
  EXPECT_TRUE(loader.is_busy());
  ASSERT_TRUE(loaded.wait(20'000));
  EXPECT_FALSE(loader.is_busy());
  loader.load("nowhere.json");
  loader.load(QString::fromStdString(path));
  ASSERT_TRUE(loaded.wait(20'000)) << "the newest wish wins";
  EXPECT_TRUE(failed.isEmpty());
  loader.load("nowhere.json");
  ASSERT_TRUE(failed.wait(20'000));
}

TEST_F(Overlays, ChartsAreWrittenAsPicturesAndTables) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot());
  const auto size_of_file = [&](const char* name) {
    const QString path = folder_.filePath(name);
    const Result<void> saved = save_chart(chart, path, {800, 400}, 2);
    EXPECT_TRUE(saved.has_value()) << (saved ? "" : to_string(saved.error().front()));
    std::ifstream file(path.toStdString(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string png = size_of_file("chart.png");
  EXPECT_EQ(QImage::fromData(QByteArray::fromStdString(png)).size(), QSize(1600, 800));
  const std::string svg = size_of_file("chart.svg");
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find("usable "), std::string::npos) << "texts stay texts";
  EXPECT_EQ(svg.find("<image"), std::string::npos) << "shapes stay shapes";
  EXPECT_TRUE(size_of_file("chart.pdf").starts_with("%PDF"));
  EXPECT_FALSE(save_chart(chart, folder_.filePath("chart.gif"), {800, 400}).has_value());
  const QString csv = to_csv(*chart.twin_model());
  EXPECT_EQ(csv.count('\n'), chart.twin_model()->rowCount() + 1);
  EXPECT_TRUE(csv.startsWith("event,seconds,instruction,unit,tensor,change_bytes,live_bytes"));
  const QString markdown = to_markdown(*chart.twin_model());
  EXPECT_TRUE(markdown.startsWith("| event | time |"));
  EXPECT_EQ(markdown.count('\n'), chart.twin_model()->rowCount() + 2);
}

TEST(Overlay, StepOfAnotherLengthIsStretchedOverThePrediction) {
  Overlay measured;
  measured.step = Seconds(8);
  measured.time = {0, 4, 8};
  measured.allocated = {1, 3, 2};
  measured.events.resize(1);
  measured.events[0].start = Seconds(2);
  measured.events[0].end = Seconds(6);
  // Nearly as long as predicted: the difference is what is looked for.
  EXPECT_EQ(laid_over(measured, Seconds(5)).time, measured.time);
  EXPECT_EQ(laid_over(measured, Seconds(5)).stretch, 1);
  const Overlay placed = laid_over(measured, Seconds(2));
  EXPECT_EQ(placed.time, (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(placed.events[0].end, Seconds(1.5));
  EXPECT_EQ(placed.allocated, measured.allocated);
  EXPECT_EQ(placed.step, Seconds(8)) << "what was measured is still said";
  EXPECT_EQ(placed.stretch, 0.25);
}

}  // namespace
}  // namespace fsdp::gui
