#include "text/curve_text.h"

#include <algorithm>
#include <array>

#include "core/base/parse_units.h"
#include "text/terminal.h"

namespace fsdp::text {

namespace {

/// The highest value of each column.
std::vector<Bytes> columns_of(const std::vector<Bytes>& values, int columns) {
  std::vector<Bytes> highest(static_cast<std::size_t>(columns));
  const std::size_t size = values.size();
  for (std::size_t column = 0; column < highest.size(); ++column) {
    const std::size_t begin = column * size / highest.size();
    const std::size_t end = std::max(begin + 1, (column + 1) * size / highest.size());
    for (std::size_t i = begin; i < end; ++i) highest[column] = std::max(highest[column], values[i]);
  }
  return highest;
}

/// "└forward────└backward──└optimizer": a name that the next mark would cut is left out.
std::string phase_line(const MemoryReport& memory, std::size_t columns) {
  std::vector<std::string> cells(columns, "─");
  const auto column_of = [&](std::int64_t index) {
    return static_cast<std::size_t>(index) * columns / memory.live_over_step.size();
  };
  for (std::size_t i = 0; i < memory.phase_marks.size(); ++i) {
    const PhaseMark& mark = memory.phase_marks[i];
    if (mark.index < 0 || mark.index >= static_cast<std::int64_t>(memory.live_over_step.size())) continue;
    const std::size_t begin = column_of(mark.index);
    const bool is_last = i + 1 == memory.phase_marks.size();
    const std::size_t end = is_last ? columns : std::min(columns, column_of(memory.phase_marks[i + 1].index));
    if (begin >= columns) continue;
    cells[begin] = "└";
    const std::string_view name = name_of(mark.phase);
    if (begin + 1 + name.size() > end) continue;
    for (std::size_t c = 0; c < name.size(); ++c) cells[begin + 1 + c] = name[c];
  }
  std::string line;
  for (const std::string& cell : cells) line += cell;
  return line;
}

}  // namespace

std::vector<std::string> memory_curve(const MemoryReport& memory, int width, int height) {
  if (memory.live_over_step.empty()) return {};
  const Bytes top = *std::max_element(memory.live_over_step.begin(), memory.live_over_step.end());
  if (top <= Bytes(0)) return {};
  const std::string label = format_bytes(top);
  const int columns =
      std::min({width - display_width(label) - 1, kMostColumns, static_cast<int>(memory.live_over_step.size())});
  if (columns < 8) return {};

  const std::vector<Bytes> highest = columns_of(memory.live_over_step, columns);
  std::vector<std::string> lines;
  for (int row = height - 1; row >= 0; --row) {
    // Layout would fold lines of blanks, so every row begins with a word.
    std::string line = row == height - 1 ? label : std::string(static_cast<std::size_t>(display_width(label)), ' ');
    line += row == height - 1 ? "┤" : "│";
    for (const Bytes value : highest) {
      const int eighths = static_cast<int>(ratio(value, top) * height * kEighths + 0.5) - row * kEighths;
      line += kBlocks[std::clamp(eighths, 0, kEighths)];
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(std::string(static_cast<std::size_t>(display_width(label)), ' ') + "└" +
                  phase_line(memory, highest.size()));
  return lines;
}

}  // namespace fsdp::text
