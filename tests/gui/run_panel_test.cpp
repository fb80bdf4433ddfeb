#include "gui/panels/run_panel.h"

#include <gtest/gtest.h>

#include <QFile>
#include <QTemporaryDir>

#include "gui/overlay/overlay_reader.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

/// A run panel whose command is a shell script: `$1` is the verb, `$4` the file for the report.
class RunPanelTest : public testing::Test {
 protected:
  void use(const QByteArray& script) {
    QFile file(folder_.filePath("fsdp-plan"));
    ASSERT_TRUE(file.open(QFile::WriteOnly));
    file.write("#!/bin/sh\n" + script);
    file.close();
    file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    qputenv("FSDP_PLAN_BINARY", file.fileName().toUtf8());
    state_.open(test::small_inputs());
    ASSERT_TRUE(test::wait_until_idle(state_));
  }
  void TearDown() override { qputenv("FSDP_PLAN_BINARY", before_); }
  bool wait_for_end() {
    return QTest::qWaitFor([&] { return !panel_.is_running(); }, test::kPatience);
  }

  QByteArray before_ = qgetenv("FSDP_PLAN_BINARY");
  QTemporaryDir folder_;
  AppState state_{test::library()};
  RunPanel panel_{state_};
};

TEST_F(RunPanelTest, ReportOfARunIsItsMeasurement) {
  use("echo running $1; " + before_ + " simulate \"$2\" --json > \"$4\"\n");
  panel_.start(ProcessRun::Kind::Execute);
  EXPECT_TRUE(panel_.is_running());
  ASSERT_TRUE(wait_for_end());
  EXPECT_TRUE(panel_.log().contains("running execute")) << panel_.log().toStdString();
  ASSERT_TRUE(QTest::qWaitFor([&] { return state_.measured() != nullptr; }, test::kPatience))
      << panel_.log().toStdString();
  EXPECT_EQ(state_.measured()->report->memory.peaks.live, state_.snapshot()->report.memory.peaks.live);
}

// What a run measured lies over the prediction as a curve and as lanes, with the figures of its report.
TEST_F(RunPanelTest, ExecutionLeavesATraceAndAReport) {
  use(before_ + " simulate \"$2\" --json > \"$4\"; " + before_ + " export \"$2\" --to chrome -o \"$8\"\n");
  QString trace;
  OverlayPtr report;
  QObject::connect(&panel_, &RunPanel::traced, [&](const QString& path, const auto& of) {
    trace = path;
    report = of;
  });
  panel_.start(ProcessRun::Kind::Execute);
  ASSERT_TRUE(QTest::qWaitFor([&] { return !trace.isEmpty(); }, test::kPatience)) << panel_.log().toStdString();
  OverlayLoader loader;
  OverlayPtr overlay;
  QObject::connect(&loader, &OverlayLoader::loaded, [&](const OverlayPtr& read) { overlay = read; });
  loader.load(trace, report);
  ASSERT_TRUE(QTest::qWaitFor([&] { return overlay != nullptr; }, test::kPatience));
  EXPECT_GT(overlay->time.size(), 10u);
  EXPECT_GT(overlay->events.size(), 5u);
  ASSERT_TRUE(overlay->report.has_value());
  EXPECT_EQ(overlay->report->memory.peaks.device, state_.snapshot()->report.memory.peaks.device);
  EXPECT_GT(overlay->report->memory.peaks.device, Bytes(0)) << "a trace alone does not know it";
}

TEST_F(RunPanelTest, ARunIsStopped) {
  use("echo started; exec sleep 86400\n");
  panel_.start(ProcessRun::Kind::Rehearse);
  ASSERT_TRUE(QTest::qWaitFor([&] { return panel_.log().contains("started\n"); }, test::kPatience));
  panel_.stop();
  ASSERT_TRUE(wait_for_end());
  EXPECT_TRUE(panel_.log().contains("Stopped. Nothing is left running.")) << panel_.log().toStdString();
  EXPECT_EQ(state_.measured(), nullptr);
}

TEST_F(RunPanelTest, FailureIsReported) {
  use("echo 'error: no PyTorch here.' >&2; exit 3\n");
  panel_.start(ProcessRun::Kind::Rehearse);
  ASSERT_TRUE(wait_for_end());
  EXPECT_TRUE(panel_.log().contains("no PyTorch here")) << panel_.log().toStdString();
  EXPECT_TRUE(panel_.log().contains("exit code 3")) << panel_.log().toStdString();
}

}  // namespace
}  // namespace fsdp::gui
