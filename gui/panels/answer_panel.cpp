#include "gui/panels/answer_panel.h"

#include <QScrollBar>

#include "render/render_search.h"

namespace fsdp::gui {

namespace {

QString escaped(const std::string& text) {
  return QString::fromStdString(text).toHtmlEscaped();
}

QString html_of(const text::Entry& entry) {
  QStringList lines;
  for (const std::string& line : entry.lines) lines << escaped(line);
  const QString label = escaped(entry.label);
  return QString("<tr><td style='padding-right: 18px'><a name='%1'></a><b>%1</b></td><td>%2</td></tr>")
      .arg(label, lines.join("<br>"));
}

QString html_of(const text::Table& table) {
  QString rows;
  QString head;
  const auto cell = [](const char* tag, const QString& text, bool is_numeric) {
    return QString("<%1 align='%2' style='padding-right: 18px'>%3</%1>").arg(tag, is_numeric ? "right" : "left", text);
  };
  for (const text::Column& column : table.columns) head += cell("th", escaped(column.title), column.numeric);
  for (const auto& row : table.rows) {
    rows += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      rows += cell("td", escaped(row[i].text), i < table.columns.size() && table.columns[i].numeric);
    }
    rows += "</tr>";
  }
  return QString("<tr><td style='padding-right: 18px'><a name='%1'></a><b>%1</b></td><td><table>%2%3</table></td></tr>")
      .arg(escaped(table.name), "<tr>" + head + "</tr>", rows);
}

}  // namespace

text::Document answer_of(const Snapshot& shown) {
  const render::View view{.width = 100, .pictures = false, .verbose = true};
  render::AnswerContext context;
  if (shown.model) context.facts = planner::facts_of(*shown.model);
  context.explains = true;
  if (!shown.proof) return render::document_of(shown.report, shown.explanation, view, context);
  planner::SearchResult result;
  result.verdict = shown.report.verdict;
  result.report = shown.report;
  result.proof = *shown.proof;
  result.objective = shown.objective;
  result.explanation = shown.explanation;
  result.notes = shown.notes;
  for (const planner::Candidate& plan : shown.plans) {
    if (plan.plan == shown.report.plan && result.best.label.empty()) result.best = plan;
  }
  result.facts = context.facts;
  return render::document_of(result, view, context);
}

QString to_html(const text::Document& document) {
  QString rows;
  for (const text::Section& section : document) {
    if (const auto* entry = std::get_if<text::Entry>(&section)) {
      if (!entry->is_picture) rows += html_of(*entry);
    } else if (const auto* table = std::get_if<text::Table>(&section)) {
      if (!table->only_for_scripts) rows += html_of(*table);
    }
  }
  return "<table>" + rows + "</table>";
}

AnswerPanel::AnswerPanel(QWidget* parent) : QTextBrowser(parent) {
  setObjectName("answer");
  setAccessibleName(tr("The answer as the command prints it"));
  setFrameShape(QFrame::NoFrame);
  setOpenLinks(false);
}

void AnswerPanel::set_snapshot(const SnapshotPtr& snapshot) {
  snapshot_ = snapshot;
  is_written_ = false;
  if (!visibleRegion().isEmpty()) write();
}

void AnswerPanel::write() {
  if (is_written_) return;
  is_written_ = true;
  const int before = verticalScrollBar()->value();
  setHtml(snapshot_ ? to_html(answer_of(*snapshot_)) : tr("Choose a model to see its answer."));
  // The reader's position must survive the movement of a slider.
  verticalScrollBar()->setValue(before);
}

void AnswerPanel::show_entry(const QString& label) {
  write();
  scrollToAnchor(label);
}

}  // namespace fsdp::gui
