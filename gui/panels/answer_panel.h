#pragma once

// The whole answer in the words of the command: plan, peak, traffic, time, proof, what was assumed.

#include <QTextBrowser>

#include "gui/state/snapshot.h"
#include "text/document.h"

namespace fsdp::gui {

/// What `fsdp-plan` or `fsdp-plan simulate` says of it, with `--verbose`, without pictures.
planner::Document answer_of(const Snapshot& shown);

/// A document as HTML; every entry has an anchor with its label.
QString to_html(const planner::Document& document);

class AnswerPanel : public QTextBrowser {
  Q_OBJECT

 public:
  explicit AnswerPanel(QWidget* parent = nullptr);
  void set_snapshot(const SnapshotPtr& snapshot);
  /// Scrolls to an entry: "assume".
  void show_entry(const QString& label);
};

}  // namespace fsdp::gui
