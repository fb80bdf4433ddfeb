#pragma once

// The whole answer in the words of the command: plan, peak, traffic, time, proof, what was assumed. Laying out its
// tables takes as long as a search, so it is written when somebody looks at it.

#include <QTextBrowser>

#include "gui/state/snapshot.h"
#include "text/document.h"

namespace fsdp::gui {

/// The answer of `fsdp-plan` or `fsdp-plan simulate`, with `--verbose`, without pictures.
planner::Document answer_of(const Snapshot& shown);

/// A document as HTML; every entry has an anchor with its label.
QString to_html(const planner::Document& document);

class AnswerPanel : public QTextBrowser {
  Q_OBJECT

 public:
  explicit AnswerPanel(QWidget* parent = nullptr);
  /// The answer to show; said at once if the panel is in sight, else by `write`.
  void set_snapshot(const SnapshotPtr& snapshot);
  /// The panel comes into sight.
  void write();
  /// Scrolls to an entry: "assume".
  void show_entry(const QString& label);

 private:
  SnapshotPtr snapshot_;
  bool is_written_ = false;  ///< The text is of `snapshot_`.
};

}  // namespace fsdp::gui
