// A memory snapshot by itself: what held the memory, by the line of Python, and what other settings would have done.

#include <gtest/gtest.h>

#include <QPushButton>
#include <QTableWidget>
#include <QTemporaryDir>
#include <QTreeWidget>
#include <fstream>

#include "gui/panels/recording_view.h"
#include "gui/theme/figure_text.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"
#include "tests/support/snapshot_pickle.h"

namespace fsdp::gui {
namespace {

using test::wait_until_idle;

constexpr std::int64_t kMib = 1 << 20;
constexpr std::int64_t kBase = 0x7f00'0000'0000;
constexpr std::int64_t kOther = 0x7f10'0000'0000;

class Recordings : public testing::Test {
 protected:
  /// Two lines of a script ask for 3 x 64 and 1 x 100 MiB; the peak is 292 MiB, the end 100.
  QString snapshot() {
    using namespace planner;
    std::vector<std::string> events;
    for (int i = 0; i < 3; ++i) {
      events.push_back(snapshot_event("segment_alloc", kBase + i * 64 * kMib, 64 * kMib));
      events.push_back(snapshot_event("alloc", kBase + i * 64 * kMib, 64 * kMib, 0, 41));
    }
    events.push_back(snapshot_event("segment_alloc", kOther, 100 * kMib));
    const auto frame = [](const char* file, std::int64_t line, const char* name) {
      return pickled_dict({{"filename", pickled(file)}, {"line", pickled(line)}, {"name", pickled(name)}});
    };
    events.push_back(pickled_dict({{"action", pickled("alloc")},
                                   {"addr", pickled(kOther)},
                                   {"size", pickled(100 * kMib)},
                                   {"stream", pickled(std::int64_t{0})},
                                   {"time_us", pickled(std::int64_t{2'000'000})},
                                   {"frames", pickled_list({frame("/opt/torch/nn/functional.py", 7, "linear"),
                                                            frame("train.py", 52, "loss")})}}));
    for (int i = 0; i < 3; ++i) {
      events.push_back(snapshot_event("free_requested", kBase + i * 64 * kMib, 64 * kMib));
      events.push_back(snapshot_event("free_completed", kBase + i * 64 * kMib, 64 * kMib));
    }
    const QString path = folder_.filePath("oom.pickle");
    std::ofstream(path.toStdString(), std::ios::binary) << snapshot_of(events);
    return path;
  }
  QTemporaryDir folder_;
};

TEST_F(Recordings, PeakIsSplitByLineOfPython) {
  const auto memory = read_recorded_memory(snapshot().toStdString(), {}, {});
  ASSERT_TRUE(memory.has_value()) << to_string(memory.error().front());
  EXPECT_EQ(memory->live[memory->peak], 292 * kMib);
  ASSERT_EQ(memory->at_peak.size(), 2U);
  EXPECT_EQ(memory->at_peak[0].bytes, Bytes(192 * kMib));
  EXPECT_EQ(memory->at_peak[0].count, 3);
  EXPECT_NE(line_of(memory->at_peak[0]).find("train.py:41 main"), std::string::npos) << line_of(memory->at_peak[0]);
  // PyTorch's own frame is not what a user can change.
  EXPECT_NE(line_of(memory->at_peak[1]).find("train.py:52 loss"), std::string::npos) << line_of(memory->at_peak[1]);
  const std::vector<RecordedSite> at_end = sites_at(*memory, memory->live.size() - 1);
  ASSERT_EQ(at_end.size(), 1U);
  EXPECT_EQ(at_end[0].bytes, Bytes(100 * kMib));
}

TEST_F(Recordings, OpeningAPickleShowsItByItself) {
  MainWindow window(test::library());
  window.show();
  EXPECT_TRUE(window.open_file(snapshot()));
  auto* view = window.findChild<RecordingView*>("recording_view");
  ASSERT_TRUE(QTest::qWaitFor([&] { return view->memory() != nullptr; }, test::kPatience));
  EXPECT_TRUE(view->isVisible());
  auto* sites = window.findChild<QTreeWidget*>("recorded_sites");
  ASSERT_EQ(sites->topLevelItemCount(), 2);
  EXPECT_EQ(sites->topLevelItem(0)->text(0), "192 MiB");
  EXPECT_TRUE(sites->topLevelItem(0)->text(2).contains("train.py:41"));
  EXPECT_EQ(sites->topLevelItem(1)->childCount(), 2) << "the whole stack";
  EXPECT_TRUE(window.windowTitle().contains("oom.pickle"));
  QTest::mouseClick(window.findChild<QPushButton*>("close_recording"), Qt::LeftButton);
  EXPECT_TRUE(window.findChild<QWidget*>("start_page")->isVisible());
}

TEST_F(Recordings, PlanIsHiddenWhileASnapshotIsShown) {
  MainWindow window(test::library());
  window.show();
  window.open_example(5);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Inputs before = window.state().inputs();
  EXPECT_TRUE(window.open_file(snapshot()));
  auto* view = window.findChild<RecordingView*>("recording_view");
  ASSERT_TRUE(QTest::qWaitFor([&] { return view->memory() != nullptr; }, test::kPatience));
  EXPECT_FALSE(window.findChild<QWidget*>("verdict")->isVisible());
  QTest::mouseClick(window.findChild<QPushButton*>("close_recording"), Qt::LeftButton);
  EXPECT_TRUE(window.findChild<QWidget*>("verdict")->isVisible());
  EXPECT_TRUE(window.state().inputs() == before);
}

TEST_F(Recordings, LoadingOneWithoutAPlanShowsItByItself) {
  MainWindow window(test::library());
  window.show();
  window.load_measured(snapshot());
  auto* view = window.findChild<RecordingView*>("recording_view");
  ASSERT_TRUE(QTest::qWaitFor([&] { return view->memory() != nullptr; }, test::kPatience));
  EXPECT_TRUE(view->isVisible());
}

TEST_F(Recordings, AReplayShowsWhatOtherSettingsReserve) {
  MainWindow window(test::library());
  window.show();
  window.open_file(snapshot());
  auto* view = window.findChild<RecordingView*>("recording_view");
  ASSERT_TRUE(QTest::qWaitFor([&] { return view->memory() != nullptr; }, test::kPatience));
  auto* peaks = window.findChild<QTableWidget*>("replay_peaks");
  EXPECT_EQ(peaks->columnCount(), 1);
  window.findChild<QComboBox*>("replay_settings")->setEditText("expandable_segments:True");
  QTest::mouseClick(window.findChild<QPushButton*>("replay"), Qt::LeftButton);
  ASSERT_EQ(peaks->columnCount(), 3);
  const auto answer = replay_with(*view->memory(), "expandable_segments:True", "");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(peaks->item(2, 1)->text(), text_of(answer->replayed->reserved_peak));
  EXPECT_FALSE(window.findChild<QLabel*>("replay_verdict")->text().isEmpty());
  // 200 MiB is less than the peak.
  window.findChild<QLineEdit*>("replay_memory")->setText("200MiB");
  QTest::mouseClick(window.findChild<QPushButton*>("replay"), Qt::LeftButton);
  EXPECT_GT(peaks->item(4, 1)->text().toInt(), 0) << "refused";
  window.findChild<QComboBox*>("replay_settings")->setEditText("expandable_segment:True");
  QTest::mouseClick(window.findChild<QPushButton*>("replay"), Qt::LeftButton);
  EXPECT_TRUE(window.findChild<QLabel*>("replay_verdict")->text().contains("expandable_segment"))
      << window.findChild<QLabel*>("replay_verdict")->text().toStdString();
  EXPECT_EQ(peaks->columnCount(), 1);
}

TEST_F(Recordings, OtherPickleIsAnErrorOnTheStartPage) {
  MainWindow window(test::library());
  window.show();
  const QString path = folder_.filePath("other.pickle");
  std::ofstream(path.toStdString(), std::ios::binary) << std::string("\x80\x02}q\x00.", 6);
  window.open_file(path);
  auto* errors = window.findChild<QLabel*>("start_errors");
  ASSERT_TRUE(QTest::qWaitFor([&] { return errors->isVisible(); }, test::kPatience));
  EXPECT_TRUE(errors->text().contains("not a memory snapshot")) << errors->text().toStdString();
}

}  // namespace
}  // namespace fsdp::gui
