#include "text/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/parse_units.h"
#include "core/base/printable.h"

namespace fsdp::text {

namespace {

constexpr int kGap = 2;  // Blanks between the columns of a table.
constexpr int kNarrowestColumn = 14;

std::string padding(int columns) {
  return std::string(static_cast<std::size_t>(std::max(columns, 0)), ' ');
}

/// Width of the label column, a gap included.
int label_width(const Document& document) {
  int width = 0;
  for (const Section& section : document) {
    const Entry* entry = std::get_if<Entry>(&section);
    if (entry == nullptr && std::get<Table>(section).only_for_scripts) continue;
    const std::string& label = entry != nullptr ? entry->label : std::get<Table>(section).name;
    // A long verdict such as DOES NOT FIT must not push everything else to the right.
    if (display_width(label) <= 8) width = std::max(width, display_width(label));
  }
  return width + kGap;
}

std::string to_text(const Entry& entry, int indent, const Terminal& terminal) {
  std::string text;
  std::string prefix = styled(entry.label, entry.style, terminal);
  int begin = std::max(indent, display_width(entry.label) + kGap);
  prefix += padding(begin - display_width(entry.label));
  if (entry.lines.empty()) return prefix.substr(0, prefix.find_last_not_of(' ') + 1) + "\n";
  for (const std::string& line : entry.lines) {
    const std::vector<std::string> parts = entry.is_picture ? std::vector{line} : wrap(line, terminal.width - begin);
    for (const std::string& part : parts) {
      text += prefix + part;
      while (text.ends_with(' ')) text.pop_back();
      text += "\n";
      begin = indent;
      prefix = padding(indent);
    }
  }
  return text;
}

std::vector<int> column_widths(const Table& table) {
  std::vector<int> widths;
  for (const Column& column : table.columns) widths.push_back(display_width(column.title));
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  }
  return widths;
}

std::string aligned(std::string_view text, int width, bool right, bool last, Style style, const Terminal& terminal) {
  const std::string space = padding(width - display_width(text));
  const std::string shown = styled(text, style, terminal);
  if (right) return space + shown;
  return last ? shown : shown + space;
}

/// Rows as blocks, one line for each column, for terminals that are too narrow for the table.
std::string as_records(const Table& table, int indent, const Terminal& terminal) {
  int title_width = 0;
  for (const Column& column : table.columns) title_width = std::max(title_width, display_width(column.title));
  std::string text;
  std::string prefix = styled(table.name, Style::Strong, terminal) + padding(indent - display_width(table.name));
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (r > 0) text += "\n";
    for (std::size_t i = 0; i < table.rows[r].size(); ++i) {
      const Cell& cell = table.rows[r][i];
      const std::string title = aligned(table.columns[i].title, title_width, false, false, Style::Faint, terminal);
      const int begin = indent + title_width + kGap;
      bool first = true;
      for (const std::string& part : wrap(cell.text, terminal.width - begin)) {
        text += (first ? prefix + title + padding(kGap) : padding(begin)) + styled(part, cell.style, terminal) + "\n";
        first = false;
      }
      prefix = padding(indent);
    }
  }
  return text;
}

/// Narrows the widest columns of text until the table fits. False if it cannot.
bool narrow(const Table& table, int available, std::vector<int>& widths) {
  int total = -kGap;
  for (const int width : widths) total += width + kGap;
  while (total > available) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (table.columns[i].numeric) continue;
      if (widest == widths.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == widths.size() || widths[widest] <= kNarrowestColumn) return false;
    --widths[widest];
    --total;
  }
  return true;
}

/// The lines of a cell. A name that is longer than its column continues on the next line, if possible after a dot.
std::vector<std::string> cell_lines(const std::string& text, int width) {
  std::vector<std::string> lines;
  for (std::string part : wrap(text, width)) {
    while (display_width(part) > width && static_cast<int>(part.size()) == display_width(part)) {
      const std::size_t most = static_cast<std::size_t>(width);
      const std::size_t dot = part.rfind('.', most - 1);
      const std::size_t length = dot == std::string::npos ? most : dot + 1;
      lines.push_back(part.substr(0, length));
      part.erase(0, length);
    }
    lines.push_back(std::move(part));
  }
  return lines;
}

/// One row, its cells wrapped to the widths of their columns.
std::string row_text(const Table& table, const std::vector<Cell>& row, const std::vector<int>& widths,
                     const std::string& prefix, const std::string& next_prefix, const Terminal& terminal) {
  std::vector<std::vector<std::string>> parts;
  std::size_t num_lines = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool fits = display_width(row[i].text) <= widths[i];
    parts.push_back(fits ? std::vector{row[i].text} : cell_lines(row[i].text, widths[i]));
    num_lines = std::max(num_lines, parts.back().size());
  }
  std::string text;
  for (std::size_t line = 0; line < num_lines; ++line) {
    text += line == 0 ? prefix : next_prefix;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string_view part = line < parts[i].size() ? std::string_view(parts[i][line]) : std::string_view();
      text += aligned(part, widths[i], table.columns[i].numeric, i + 1 == row.size(), row[i].style, terminal);
      if (i + 1 < row.size()) text += padding(kGap);
    }
    while (text.ends_with(' ')) text.pop_back();
    text += "\n";
  }
  return text;
}

std::string to_text(const Table& table, int indent, const Terminal& terminal) {
  std::vector<int> widths = column_widths(table);
  // In a pipe a row is one line of any length; a terminal would break it anywhere.
  if (terminal.is_terminal && !narrow(table, terminal.width - indent, widths)) {
    return as_records(table, indent, terminal);
  }
  const std::string space = padding(indent);
  const std::string head = styled(table.name, Style::Strong, terminal) + padding(indent - display_width(table.name));
  std::vector<Cell> titles;
  for (const Column& column : table.columns) titles.emplace_back(column.title, "", Style::Faint);
  std::string text = row_text(table, titles, widths, head, space, terminal);
  for (const auto& row : table.rows) text += row_text(table, row, widths, space, space, terminal);
  return text;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string markdown_field(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '`' || c == '<') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

Cell cell(std::int64_t count) {
  return {fmt::format("{}", count)};
}

Cell cell(Bytes bytes) {
  return {format_bytes(bytes), fmt::format("{}", bytes.count())};
}

Cell cell(Seconds time) {
  return {format_time(time), shortest(time.count())};
}

Cell signed_cell(Bytes bytes) {
  if (bytes == Bytes(0)) return {"0 B", "0"};
  const bool more = bytes > Bytes(0);
  return {fmt::format("{}{}", more ? "+" : "-", format_bytes(more ? bytes : -bytes)), fmt::format("{}", bytes.count()),
          more ? Style::Bad : Style::Good};
}

Cell signed_cell(Seconds time) {
  if (time == Seconds(0)) return {"0 s", "0"};
  const bool more = time > Seconds(0);
  return {fmt::format("{}{}", more ? "+" : "-", format_time(more ? time : -time)), shortest(time.count()),
          more ? Style::Bad : Style::Good};
}

Document printable(Document document) {
  for (Section& section : document) {
    if (Entry* entry = std::get_if<Entry>(&section)) {
      entry->label = fsdp::printable(entry->label);
      for (std::string& line : entry->lines) line = fsdp::printable(line);
      continue;
    }
    for (auto& row : std::get<Table>(section).rows) {
      for (Cell& field : row) {
        field.text = fsdp::printable(field.text);
        field.exact = fsdp::printable(field.exact);
      }
    }
  }
  return document;
}

std::string to_text(const Document& document, const Terminal& terminal) {
  return to_text(document, terminal, 0, document.size());
}

std::string to_text(const Document& document, const Terminal& terminal, std::size_t first, std::size_t end) {
  const int indent = label_width(document);
  std::string text;
  for (std::size_t i = first; i < std::min(end, document.size()); ++i) {
    const Table* table = std::get_if<Table>(&document[i]);
    if (table != nullptr && table->only_for_scripts) continue;
    text += std::visit([&](const auto& part) { return to_text(part, indent, terminal); }, document[i]);
  }
  return text;
}

std::string to_markdown(const Document& document) {
  std::string text;
  for (const Section& section : document) {
    const Entry* entry = std::get_if<Entry>(&section);
    const bool is_left_out = entry != nullptr ? entry->is_picture : std::get<Table>(section).only_for_scripts;
    if (is_left_out) continue;
    if (!text.empty()) text += "\n";
    if (entry != nullptr) {
      text += fmt::format("**{}**", markdown_field(entry->label));
      if (entry->lines.size() == 1) {
        text += fmt::format(" {}\n", markdown_field(entry->lines[0]));
        continue;
      }
      text += "\n\n";
      for (const std::string& line : entry->lines) text += fmt::format("- {}\n", markdown_field(line));
      continue;
    }
    const Table& table = std::get<Table>(section);
    text += fmt::format("**{}**\n\n|", markdown_field(table.name));
    for (const Column& column : table.columns) text += fmt::format(" {} |", markdown_field(column.title));
    text += "\n|";
    for (const Column& column : table.columns) text += column.numeric ? " ---: |" : " --- |";
    text += "\n";
    for (const auto& row : table.rows) {
      text += "|";
      for (const Cell& field : row) text += fmt::format(" {} |", markdown_field(field.text));
      text += "\n";
    }
  }
  return text;
}

std::string to_csv(const Document& document) {
  std::string text;
  for (const Section& section : document) {
    const Table* table = std::get_if<Table>(&section);
    if (table == nullptr) continue;
    if (!text.empty()) text += "\n";
    text += "table";
    for (const Column& column : table->columns) text += "," + csv_field(column.name);
    text += "\n";
    for (const auto& row : table->rows) {
      text += csv_field(table->name);
      for (const Cell& field : row) text += "," + csv_field(field.exact);
      text += "\n";
    }
  }
  return text;
}

namespace {

/// A number in a numeric column; null if it has none.
void write_exact(JsonWriter& writer, const Column& column, const Cell& cell) {
  if (!column.numeric) return writer.member(column.name, cell.exact);
  if (cell.exact.empty()) return writer.member(column.name, nullptr);
  if (const auto integer = parse_integer(cell.exact)) return writer.member(column.name, *integer);
  if (const auto real = parse_number(cell.exact)) return writer.member(column.name, *real);
  writer.member(column.name, cell.exact);
}

}  // namespace

std::string to_json(const Table& table) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", "1.0");
  writer.key(table.name);
  writer.begin_array();
  for (const auto& row : table.rows) {
    writer.begin_object(JsonLayout::OneLine);
    for (std::size_t i = 0; i < row.size(); ++i) write_exact(writer, table.columns[i], row[i]);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
  return std::move(writer).take();
}

}  // namespace fsdp::text
