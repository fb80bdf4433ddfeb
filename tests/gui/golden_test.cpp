// The window as it should look, compared with pictures that somebody has looked at: states, themes, and scales. The
// scale belongs to a process: ctest runs this file with QT_SCALE_FACTOR 1 and 2.
//
// Renew them all: FSDP_UPDATE_GOLDEN=1 ctest --preset dev -R GoldenPictures, then look at each that changed.

#include <gtest/gtest.h>

#include <QApplication>
#include <QDir>
#include <QFontDatabase>
#include <QImage>
#include <algorithm>

#include "gui/state/settings.h"
#include "gui/window/main_window.h"
#include "gui/window/screenshot.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;

constexpr const char* kFolder = "tests/gui/golden";
/// A picture may differ where glyphs and slanted lines are smoothed, and by some digits, but not by a label.
constexpr int kSameColor = 56;  // Out of 255, for each channel.
constexpr double kMostOther = 0.004;

/// The share of pixels that differ, and where.
double difference_of(const QImage& golden, const QImage& now, QImage& where) {
  where = QImage(now.size(), QImage::Format_RGB32);
  std::int64_t count = 0;
  for (int y = 0; y < now.height(); ++y) {
    for (int x = 0; x < now.width(); ++x) {
      const QRgb a = golden.pixel(x, y);
      const QRgb b = now.pixel(x, y);
      const int distance =
          std::max({std::abs(qRed(a) - qRed(b)), std::abs(qGreen(a) - qGreen(b)), std::abs(qBlue(a) - qBlue(b))});
      where.setPixel(x, y, distance > kSameColor ? qRgb(255, 0, 0) : qRgb(qGray(b), qGray(b), qGray(b)));
      count += distance > kSameColor ? 1 : 0;
    }
  }
  return static_cast<double>(count) / (static_cast<double>(now.width()) * now.height());
}

class GoldenPictures : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(QFontDatabase::families().contains("DejaVu Sans")) << "run scripts/bootstrap --with gui";
    QApplication::setApplicationName("fsdp-plan-gui-golden");
    QApplication::setFont(QFont("DejaVu Sans", 9));
  }
  void TearDown() override {
    QApplication::setApplicationName("fsdp-plan-gui-test");
    QApplication::setFont(before_);
  }

  void expect_golden(MainWindow& window, const QString& state) const {
    if (QWidget* focused = QApplication::focusWidget()) focused->clearFocus();
    QTest::qWait(20);
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    QTest::qWait(20);
    const QImage full = window.grab().toImage().convertToFormat(QImage::Format_RGB32);
    const QString name =
        QString("%1_%2_%3x.png").arg(state, GetParam() ? "dark" : "light").arg(window.devicePixelRatio());
    const QString path = QDir(kFolder).filePath(name);
    if (qEnvironmentVariableIsSet("FSDP_UPDATE_GOLDEN")) {
      ASSERT_TRUE(with_palette(full, 64).save(path, "PNG", 0));
      return;
    }
    const QImage golden = QImage(path).convertToFormat(QImage::Format_RGB32);
    ASSERT_EQ(golden.size(), full.size()) << path.toStdString();
    QImage where;
    const double share = difference_of(golden, full, where);
    if (share <= kMostOther) return;
    const QDir kept(QString::fromStdString(testing::TempDir()));
    full.save(kept.filePath(name));
    where.save(kept.filePath("differs_" + name));
    ADD_FAILURE() << name.toStdString() << ": " << 100 * share << " % of the pixels differ. See both in "
                  << kept.path().toStdString();
  }

 private:
  QFont before_ = QApplication::font();
};

TEST_P(GoldenPictures, MatchInEachState) {
  Settings().set_machine({});  // Left by another test.
  MainWindow window(test::library());
  AppState& state = window.state();
  window.set_theme(GetParam() ? ThemeChoice::Dark : ThemeChoice::Light);
  window.resize(1000, 620);
  window.show();
  expect_golden(window, "start");
  const Inputs fits = test::quick_inputs("gpt2");
  state.open(fits);
  ASSERT_TRUE(test::wait_until_idle(state));
  window.show_view("pareto");
  expect_golden(window, "fits");
  state.pin_baseline();
  state.change(test::with(fits, PlanChoice::Memory, "1G"), "less memory");
  ASSERT_TRUE(test::wait_until_idle(state));
  expect_golden(window, "does_not_fit_beside_baseline");
  state.set_baseline(nullptr);
  state.change(with_typed(fits, PlanChoice::Gpus, "many"), "nonsense");
  ASSERT_TRUE(test::wait_until_idle(state));
  window.show_view("modules");
  window.show_view("peak");
  expect_golden(window, "error");
  state.change(fits, "back");
  ASSERT_TRUE(test::wait_until_idle(state));
  window.show_view("teaching");
  window.findChild<TeachingWidget*>("teaching")->set_frame(30);
  expect_golden(window, "teaching");
  state.open(with_kept(fits, plan_file_of(*state.snapshot())));
  ASSERT_TRUE(test::wait_until_idle(state));
  window.show_view("pareto");
  expect_golden(window, "plan_of_a_file");
  state.open(fits);
  ASSERT_TRUE(test::wait_until_idle(state));
  window.show_view("controls");
  window.show_view("tables");
  window.resize(800, 500);
  expect_golden(window, "small");
}

INSTANTIATE_TEST_SUITE_P(Themes, GoldenPictures, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "dark" : "light"); });

}  // namespace
}  // namespace fsdp::gui
