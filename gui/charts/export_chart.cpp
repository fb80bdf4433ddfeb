#include "gui/charts/export_chart.h"

#include <QBuffer>
#include <QFileInfo>
#include <QImage>
#include <QPageSize>
#include <QPainter>
#include <QPdfWriter>
#include <QSvgGenerator>

#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "gui/charts/table_twin.h"

namespace fsdp::gui {

namespace {

QByteArray png_of(const QSize& size, qreal scale, const QString& title, const DrawChart& draw) {
  QImage image((QSizeF(size) * scale).toSize(), QImage::Format_ARGB32_Premultiplied);
  image.setDevicePixelRatio(scale);
  image.setText("Title", title);
  QPainter painter(&image);
  draw(painter, QRectF(QPointF(0, 0), QSizeF(size)));
  painter.end();
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  image.save(&buffer, "PNG");
  return bytes;
}

QByteArray svg_of(const QSize& size, const QString& title, const DrawChart& draw) {
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator svg;
  svg.setOutputDevice(&buffer);
  svg.setSize(size);
  svg.setViewBox(QRect(QPoint(0, 0), size));
  svg.setTitle(title);
  QPainter painter(&svg);
  draw(painter, QRectF(QPointF(0, 0), QSizeF(size)));
  painter.end();
  return bytes;
}

QByteArray pdf_of(const QSize& size, const QString& title, const DrawChart& draw) {
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  QPdfWriter pdf(&buffer);
  pdf.setTitle(title);
  pdf.setPageSize(QPageSize(QSizeF(size) * 0.75, QPageSize::Point));
  pdf.setPageMargins({0, 0, 0, 0});
  pdf.setResolution(96);
  QPainter painter(&pdf);
  draw(painter, QRectF(QPointF(0, 0), QSizeF(size)));
  painter.end();
  return bytes;
}

// A picture that leaves the window carries its own title.
int heading_of(const PlotWidget& chart) {
  return static_cast<int>(std::ceil(2 * QFontMetricsF(chart.font()).height() + 14));
}

void draw_titled(PlotWidget& chart, QPainter& painter, const QRectF& bounds) {
  const QFontMetricsF metrics(chart.font());
  painter.fillRect(bounds, chart.theme().background);
  QFont strong = chart.font();
  strong.setBold(true);
  painter.setFont(strong);
  painter.setPen(chart.theme().text);
  painter.drawText(QPointF(bounds.left() + 12, bounds.top() + 6 + metrics.ascent()), chart.title());
  painter.setFont(chart.font());
  painter.setPen(chart.theme().text_weak);
  const QString caption = metrics.elidedText(chart.caption(), Qt::ElideRight, bounds.width() - 24);
  painter.drawText(QPointF(bounds.left() + 12, bounds.top() + 8 + metrics.height() + metrics.ascent()), caption);
  chart.draw(painter, bounds.adjusted(0, heading_of(chart), 0, 0));
}

Result<void> write(const QString& path, const QByteArray& bytes) {
  return write_file_atomically(path.toStdString(),
                               std::string_view(bytes.constData(), static_cast<std::size_t>(bytes.size())),
                               Overwrite::Allow);
}

QString cell_for_file(const QAbstractItemModel& table, int row, int column, bool exact) {
  const QModelIndex index = table.index(row, column);
  const QVariant raw = exact ? table.data(index, TableTwin::kExact) : QVariant();
  if (!raw.isValid()) return table.data(index).toString();
  if (raw.typeId() == QMetaType::Double) return QString::fromStdString(shortest(raw.toDouble()));
  return raw.toString();
}

}  // namespace

Result<void> save_picture(const QString& path, const QSize& size, qreal scale, const QString& title,
                          const DrawChart& draw) {
  const QString end = QFileInfo(path).suffix().toLower();
  if (end == "png") return write(path, png_of(size, scale, title, draw));
  if (end == "svg") return write(path, svg_of(size, title, draw));
  if (end == "pdf") return write(path, pdf_of(size, title, draw));
  return failure(path.toStdString(), "A picture cannot be written as \"." + end.toStdString() + "\".",
                 "End the name in .png, .svg or .pdf.");
}

Result<void> save_chart(PlotWidget& chart, const QString& path, const QSize& size, qreal scale) {
  const int heading = heading_of(chart);
  const QSize of_chart = size.isEmpty() ? chart.size() : size;
  const QSize whole = size.isEmpty() ? of_chart + QSize(0, heading) : of_chart;
  return save_picture(path, whole, scale, chart.title(),
                      [&](QPainter& painter, const QRectF& bounds) { draw_titled(chart, painter, bounds); });
}

QByteArray png_of(PlotWidget& chart, qreal scale) {
  return png_of(chart.size() + QSize(0, heading_of(chart)), scale, chart.title(),
                [&](QPainter& painter, const QRectF& bounds) { draw_titled(chart, painter, bounds); });
}

QString to_csv(const QAbstractItemModel& table) {
  QString text;
  const auto add = [&](QString cell, bool is_first) {
    if (!is_first) text += ',';
    if (cell.contains(',') || cell.contains('"') || cell.contains('\n')) cell = '"' + cell.replace("\"", "\"\"") + '"';
    text += cell;
  };
  const auto* twin = qobject_cast<const TableTwin*>(&table);
  for (int c = 0; c < table.columnCount(); ++c) {
    const bool has_name = twin != nullptr;
    add(has_name ? twin->columns()[c].name : table.headerData(c, Qt::Horizontal).toString(), c == 0);
  }
  text += "\r\n";
  for (int r = 0; r < table.rowCount(); ++r) {
    for (int c = 0; c < table.columnCount(); ++c) add(cell_for_file(table, r, c, true), c == 0);
    text += "\r\n";
  }
  return text;
}

QString to_markdown(const QAbstractItemModel& table) {
  const auto escaped = [](QString cell) { return cell.replace('|', "\\|").replace('\n', ' '); };
  QString text = "|";
  QString rule = "|";
  for (int c = 0; c < table.columnCount(); ++c) {
    text += ' ' + escaped(table.headerData(c, Qt::Horizontal).toString()) + " |";
    const int align = table.rowCount() > 0 ? table.data(table.index(0, c), Qt::TextAlignmentRole).toInt() : 0;
    rule += (align & Qt::AlignRight) != 0 ? "---:|" : "---|";
  }
  text += '\n' + rule + '\n';
  for (int r = 0; r < table.rowCount(); ++r) {
    text += '|';
    for (int c = 0; c < table.columnCount(); ++c) text += ' ' + escaped(cell_for_file(table, r, c, false)) + " |";
    text += '\n';
  }
  return text;
}

Result<void> save_table(const QAbstractItemModel& table, const QString& path) {
  const QString end = QFileInfo(path).suffix().toLower();
  if (end == "csv") return write(path, to_csv(table).toUtf8());
  if (end == "md") return write(path, to_markdown(table).toUtf8());
  return failure(path.toStdString(), "A table cannot be written as \"." + end.toStdString() + "\".",
                 "End the name in .csv or .md.");
}

}  // namespace fsdp::gui
