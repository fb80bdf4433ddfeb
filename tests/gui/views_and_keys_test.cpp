// Views by keys, and the sheet that lists all keys.

#include <gtest/gtest.h>

#include <QAction>
#include <QDialog>
#include <QDockWidget>
#include <QScrollBar>
#include <QTextBrowser>

#include "gui/panels/key_sheet.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

constexpr const char* kInOrder[] = {"controls", "modules", "pareto", "peak",    "differences",
                                    "teaching", "tables",  "runs",   "messages"};

bool is_in_front(MainWindow& window, const QString& name) {
  const auto* dock = window.findChild<QDockWidget*>("dock_" + name);
  return dock->isVisible() && !dock->widget()->visibleRegion().isEmpty();
}

TEST(Views, AltAndADigitShowAViewEveryTime) {
  MainWindow window(test::library());
  window.show();
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  int key = Qt::Key_1;
  for (const char* name : kInOrder) {
    for (int time = 0; time < 3; ++time) {
      QTest::keyClick(&window, static_cast<Qt::Key>(key), Qt::AltModifier);
      QTest::qWait(20);
      EXPECT_TRUE(is_in_front(window, name)) << name << ", pressed " << time + 1 << " times";
    }
    QWidget* content = window.findChild<QDockWidget*>(QString("dock_") + name)->widget();
    const QWidget* focus = window.focusWidget();
    EXPECT_TRUE(focus != nullptr && (focus == content || content->isAncestorOf(focus))) << name << " has the focus";
    ++key;
  }
}

TEST(Views, HiddenViewReturnsByItsKey) {
  MainWindow window(test::library());
  window.show();
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  auto* dock = window.findChild<QDockWidget*>("dock_tables");
  window.findChild<QAction*>("action_show_tables")->trigger();
  ASSERT_TRUE(dock->isHidden()) << "the menu still hides";
  QTest::keyClick(&window, Qt::Key_7, Qt::AltModifier);
  QTest::qWait(20);
  EXPECT_TRUE(is_in_front(window, "tables"));
}

TEST(Views, AreFoundByTheTitlesOfTheirTabs) {
  MainWindow window(test::library());
  window.show();
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  for (const auto& [word, name] : {std::pair("plans", "pareto"),
                                   {"Step by step", "teaching"},
                                   {"step-by-step", "teaching"},
                                   {"in-words", "answer"},
                                   {"peak", "peak"},
                                   {"pareto", "pareto"}}) {
    EXPECT_TRUE(window.show_view(word)) << word;
    QTest::qWait(20);
    EXPECT_TRUE(is_in_front(window, name)) << word;
  }
  EXPECT_FALSE(window.show_view("nothing"));
  EXPECT_TRUE(window.views().contains("plans") && !window.views().contains("pareto"));
}

TEST(Views, StartPageHidesAllViews) {
  MainWindow window(test::library());
  window.show();
  QTest::keyClick(&window, Qt::Key_7, Qt::AltModifier);
  QTest::qWait(20);
  EXPECT_TRUE(window.findChild<QDockWidget*>("dock_tables")->isHidden());
}

TEST(KeySheet, IsGroupedByMenuAndClosesByEscape) {
  MainWindow window(test::library());
  window.show();
  ASSERT_TRUE(QTest::qWaitForWindowActive(&window));
  QTest::keyClick(&window, Qt::Key_Question);
  auto* sheet = window.findChild<QDialog*>("keyboard_sheet");
  ASSERT_NE(sheet, nullptr);
  ASSERT_TRUE(QTest::qWaitForWindowExposed(sheet));
  auto* text = sheet->findChild<QTextBrowser*>();
  EXPECT_EQ(text->verticalScrollBar()->value(), 0);
  const QString all = text->toPlainText();
  int last = -1;
  for (const char* group : {"File\n", "Edit\n", "View\n", "Plan\n", "Run\n", "Help\n", "Charts\n", "Memory\n"}) {
    const auto at = static_cast<int>(all.indexOf(group, last + 1));
    EXPECT_GT(at, last) << group;
    last = std::max(last, at);
  }
  EXPECT_LT(all.indexOf("Ctrl+O"), all.indexOf("Ctrl+Z")) << "as in the menus";
  EXPECT_TRUE(all.contains("Alt+7"));
  QTest::keyClick(sheet, Qt::Key_Escape);
  EXPECT_FALSE(sheet->isVisible());
}

TEST(KeySheet, NamesNoKeyTwiceInOneGroup) {
  MainWindow window(test::library());
  for (const KeyGroup& group : groups_of(*window.menuBar(), {})) {
    std::set<QString> seen;
    for (const auto& [keys, what] : group.keys) {
      EXPECT_TRUE(seen.insert(keys).second) << keys.toStdString() << " " << what.toStdString();
    }
  }
}

}  // namespace
}  // namespace fsdp::gui
