#pragma once

// The output of a command as data: labeled sentences and tables. It is laid out once for people, and written once for
// Markdown and for CSV, so that all three have the same contents.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/units.h"
#include "text/terminal.h"

namespace fsdp::text {

enum class Format { Table, Json, Csv, Markdown, Trace, Sarif, Github };

/// A cell of a table: the text for people, and the exact value for scripts.
struct Cell {
  std::string text;
  std::string exact;
  Style style = Style::Plain;

  Cell() = default;
  Cell(std::string shown) : text(shown), exact(std::move(shown)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* shown) : Cell(std::string(shown)) {}              // NOLINT(google-explicit-constructor)
  Cell(std::string shown, std::string raw, Style how = Style::Plain)
      : text(std::move(shown)), exact(std::move(raw)), style(how) {}
};

Cell cell(std::int64_t count);
Cell cell(Bytes bytes);   ///< "1.5 GiB"; its exact value is 1610612736.
Cell cell(Seconds time);  ///< "3.5 ms"; its exact value is 0.0035.
/// With a sign: "+1.5 GiB", "-3.5 ms". Less is good.
Cell signed_cell(Bytes bytes);
Cell signed_cell(Seconds time);

struct Column {
  std::string title;     ///< "sent per rank"
  std::string name;      ///< "sent_bytes_per_rank": the head of the column in CSV.
  bool numeric = false;  ///< Aligned to the right.
};

struct Table {
  std::string name;  ///< "traffic": the label for people, the first column in CSV.
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< [rows][columns]
  bool only_for_scripts = false;        ///< For CSV only, because it repeats the sentences.
};

/// A label and its lines. Each line is wrapped separately.
struct Entry {
  std::string label;
  std::vector<std::string> lines;
  Style style = Style::Strong;  ///< Style of the label.
  bool is_picture = false;      ///< Made of characters: printed unchanged, and left out of Markdown.
};

using Section = std::variant<Entry, Table>;
using Document = std::vector<Section>;

/// The document with every text made printable on a terminal (core/base/printable.h).
Document printable(Document document);

/// Labels in the first columns, text next to them. A table that is too wide for a terminal wraps its columns of text;
/// if that is not enough, it prints each row as a block. In a pipe every row is one line.
std::string to_text(const Document& document, const Terminal& terminal);
/// The same for the sections from `first` to before `end`, so that an answer that is printed in parts is laid out as a
/// whole.
std::string to_text(const Document& document, const Terminal& terminal, std::size_t first, std::size_t end);
std::string to_markdown(const Document& document);
/// The tables only, one after the other with an empty line between; the first column is the table's name. RFC 4180.
std::string to_csv(const Document& document);
/// One table as the rows of a JSON array of its name, each an object of the exact values: numbers in numeric columns,
/// null if a cell has none.
std::string to_json(const Table& table);

}  // namespace fsdp::text
