#pragma once

// The whole answer in the words of the command: plan, peak, traffic, time, proof, assumptions. Laying out its tables
// takes as long as a search, so the text is written only when the panel is visible.

#include <QTextBrowser>

#include "gui/state/snapshot.h"
#include "text/document.h"

namespace fsdp::gui {

/// The answer of `fsdp-plan` or `fsdp-plan simulate`, with `--verbose`, without pictures.
text::Document answer_of(const Snapshot& shown);

/// A document as HTML; every entry has an anchor with its label.
QString to_html(const text::Document& document);

class AnswerPanel : public QTextBrowser {
  Q_OBJECT

 public:
  explicit AnswerPanel(QWidget* parent = nullptr);
  /// Sets the answer. Writes it at once if the panel is visible; otherwise `write` does.
  void set_snapshot(const SnapshotPtr& snapshot);
  /// Call this when the panel becomes visible.
  void write();
  /// Scrolls to an entry: "assume".
  void show_entry(const QString& label);

 private:
  SnapshotPtr snapshot_;
  bool is_written_ = false;  ///< Whether the text is that of `snapshot_`.
};

}  // namespace fsdp::gui
