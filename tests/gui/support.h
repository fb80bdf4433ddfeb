#pragma once

// What the tests of the window share: small states, and waiting for an answer.

#include <QAbstractButton>
#include <QApplication>
#include <QElapsedTimer>
#include <QFileDialog>
#include <QLineEdit>
#include <QMenu>
#include <QMessageBox>
#include <QSignalSpy>
#include <QTest>
#include <QTimer>
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/library/model_library.h"
#include "gui/state/app_state.h"

namespace fsdp::gui::test {

inline std::string library() {
  return "model_specs";
}

/// The example that answers in some milliseconds.
constexpr int kSmallExample = 5;

constexpr Bytes gib(std::int64_t count) {
  return Bytes(count << 30);
}

/// `mlp` on 4 GPUs of 16 GiB: a search of some milliseconds.
inline Inputs small_inputs(const std::string& model = "mlp") {
  Inputs inputs;
  inputs.model = model;
  inputs.choices = {.gpus = 4, .memory = gib(16)};
  return inputs;
}

/// The same with the dear choices made: a model of this size then answers in a fraction of a second.
inline Inputs quick_inputs(const std::string& model) {
  return with_choices(small_inputs(model),
                      {.strategy = "FULL_SHARD", .wrap = planner::Wrap{}, .wrap_ends = true, .cpu_offload = false});
}

/// With a choice as one writes it. REQUIRES: it can be read.
inline Inputs with(Inputs inputs, planner::PlanChoice choice, const std::string& text) {
  return with_text(std::move(inputs), choice, text).value();
}

/// Milliseconds. However busy a machine is, only what hangs takes as long.
constexpr int kPatience = 900'000;

/// Waits until the newest inputs are fully answered or have an error.
inline bool wait_until_idle(AppState& state, int milliseconds = kPatience) {
  QElapsedTimer timer;
  timer.start();
  QTest::qWait(0);
  while (state.is_busy() && timer.elapsed() < milliseconds) QTest::qWait(2);
  return !state.is_busy();
}

/// Entries of a menu that somebody can choose: titles are none.
inline std::size_t num_entries(const QMenu& menu) {
  const QList<QAction*> actions = menu.actions();
  return static_cast<std::size_t>(
      std::count_if(actions.begin(), actions.end(), [](const QAction* action) { return !action->isSeparator(); }));
}

/// Answers the next question once it is asked, and tells what it was. REQUIRES: `asked` lives until then.
inline void answer_next(QMessageBox::StandardButton button, QString& asked) {
  auto* timer = new QTimer(qApp);
  QObject::connect(timer, &QTimer::timeout, timer, [timer, button, &asked] {
    auto* box = qobject_cast<QMessageBox*>(QApplication::activeModalWidget());
    if (box == nullptr) return;
    asked = box->text();
    timer->deleteLater();
    QTest::mouseClick(box->button(button), Qt::LeftButton);
  });
  timer->start(5);
}

/// Types a name into the next file dialog once it is there, for a file of the current folder. A name with folders would
/// have the dialog list each of them as it is typed, and what Return does then depends on which list has come.
inline void name_next_file(const QString& name) {
  auto* timer = new QTimer(qApp);
  QObject::connect(timer, &QTimer::timeout, timer, [timer, name] {
    auto* dialog = qobject_cast<QFileDialog*>(QApplication::activeModalWidget());
    if (dialog == nullptr) return;
    timer->deleteLater();
    auto* edit = dialog->findChild<QLineEdit*>("fileNameEdit");
    edit->selectAll();
    QTest::keyClicks(edit, name);
    QTest::keyClick(edit, Qt::Key_Return);
  });
  timer->start(50);
}

}  // namespace fsdp::gui::test
