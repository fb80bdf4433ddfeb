#include "gui/panels/key_sheet.h"

#include <QDialogButtonBox>
#include <QMenu>
#include <QTextBrowser>
#include <QVBoxLayout>
#include <algorithm>

namespace fsdp::gui {

namespace {

QString plain(QString text) {
  return text.remove('&').remove(QStringLiteral(" …"));
}

void add_keys(const QAction& action, KeyGroup& group) {
  QStringList keys;
  for (const QKeySequence& each : action.shortcuts()) keys << each.toString(QKeySequence::NativeText);
  if (!keys.isEmpty()) group.keys.emplace_back(keys.join(KeySheet::tr(" or ")), plain(action.text()));
}

void collect(const QMenu& menu, KeyGroup& group) {
  for (const QAction* action : menu.actions()) {
    if (action->menu() != nullptr) {
      collect(*action->menu(), group);
    } else {
      add_keys(*action, group);
    }
  }
}

}  // namespace

std::vector<KeyGroup> groups_of(const QMenuBar& menus, const std::vector<KeyedWidget>& charts) {
  std::vector<KeyGroup> groups;
  for (const QAction* action : menus.actions()) {
    if (action->menu() == nullptr) continue;
    KeyGroup group{plain(action->text()), {}};
    collect(*action->menu(), group);
    if (!group.keys.empty()) groups.push_back(std::move(group));
  }
  for (const KeyedWidget& chart : charts) {
    KeyGroup group{chart.title, chart.more};
    for (const QAction* action : chart.widget->actions()) add_keys(*action, group);
    for (const KeyGroup& before : groups) {
      std::erase_if(group.keys, [&](const auto& key) {
        return std::find(before.keys.begin(), before.keys.end(), key) != before.keys.end();
      });
    }
    if (!group.keys.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

KeySheet::KeySheet(const std::vector<KeyGroup>& groups, QWidget* parent) : QDialog(parent) {
  setObjectName("keyboard_sheet");
  setWindowTitle(tr("Keyboard"));
  auto* text = new QTextBrowser(this);
  text->setAccessibleName(windowTitle());
  QString html;
  for (const KeyGroup& group : groups) {
    html += QString("<h3>%1</h3><table width='100%'>").arg(group.title.toHtmlEscaped());
    for (const auto& [keys, what] : group.keys) {
      html +=
          QString("<tr><td width='38%'><b>%1</b></td><td>%2</td></tr>").arg(keys.toHtmlEscaped(), what.toHtmlEscaped());
    }
    html += "</table>";
  }
  text->setHtml(html);
  text->moveCursor(QTextCursor::Start);
  auto* close = new QDialogButtonBox(QDialogButtonBox::Close, this);
  connect(close, &QDialogButtonBox::rejected, this, &QDialog::reject);
  auto* column = new QVBoxLayout(this);
  column->addWidget(text);
  column->addWidget(close);
  resize(500, 600);
}

}  // namespace fsdp::gui
