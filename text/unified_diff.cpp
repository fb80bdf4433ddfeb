// The longest common subsequence of the lines between the first and the last that differ, by dynamic programming: a
// configuration has hundreds of lines, and few of them change.
//
// Sources: POSIX.1-2017, diff (unified format); GNU diffutils 3.8 ("\ No newline at end of file").

#include "text/unified_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdp::text {

namespace {

constexpr std::size_t kAround = 3;

/// The lines of a text, with their ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    lines.push_back(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// A line of the difference: ' ', '-' or '+' and its text.
struct DiffLine {
  char kind = ' ';
  std::string_view text;
};

std::vector<DiffLine> aligned(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  std::size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  std::size_t tail = 0;
  while (tail < a.size() - head && tail < b.size() - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const std::size_t rows = a.size() - head - tail;
  const std::size_t columns = b.size() - head - tail;
  // [rows + 1][columns + 1] Common lines from there on.
  std::vector<std::size_t> common((rows + 1) * (columns + 1), 0);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return common[i * (columns + 1) + j]; };
  for (std::size_t i = rows; i-- > 0;) {
    for (std::size_t j = columns; j-- > 0;) {
      at(i, j) = a[head + i] == b[head + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  std::vector<DiffLine> lines;
  for (std::size_t i = 0; i < head; ++i) lines.push_back({' ', a[i]});
  for (std::size_t i = 0, j = 0; i < rows || j < columns;) {
    if (i < rows && j < columns && a[head + i] == b[head + j]) {
      lines.push_back({' ', a[head + i]});
      ++i, ++j;
    } else if (i < rows && (j == columns || at(i + 1, j) >= at(i, j + 1))) {
      lines.push_back({'-', a[head + i++]});
    } else {
      lines.push_back({'+', b[head + j++]});
    }
  }
  for (std::size_t i = a.size() - tail; i < a.size(); ++i) lines.push_back({' ', a[i]});
  return lines;
}

/// "3,7", "3" for one line, "2,0" for none after line 2.
std::string range_of(std::size_t first, std::size_t count) {
  if (count == 1) return std::to_string(first + 1);
  return fmt::format("{},{}", count == 0 ? first : first + 1, count);
}

}  // namespace

std::string unified_diff(std::string_view name, std::string_view before, std::string_view after) {
  if (before == after) return {};
  const std::vector<DiffLine> lines = aligned(lines_of(before), lines_of(after));
  std::string diff = fmt::format("--- {0}\n+++ {0}\n", name);
  std::size_t old_line = 0;
  std::size_t new_line = 0;
  for (std::size_t l = 0; l < lines.size();) {
    const auto changed = std::find_if(lines.begin() + static_cast<std::ptrdiff_t>(l), lines.end(),
                                      [](const DiffLine& line) { return line.kind != ' '; });
    const auto first = static_cast<std::size_t>(changed - lines.begin());
    if (first == lines.size()) break;
    const std::size_t begin = std::max(l, first - std::min(first, kAround));
    old_line += begin - l;
    new_line += begin - l;
    // A hunk ends where more lines stay than it shows around changes.
    std::size_t end = first;
    for (std::size_t same = 0, e = first; e < lines.size() && same <= 2 * kAround; ++e) {
      same = lines[e].kind == ' ' ? same + 1 : 0;
      if (same == 0) end = e + 1;
    }
    end = std::min(end + kAround, lines.size());
    std::string body;
    std::size_t num_old = 0;
    std::size_t num_new = 0;
    for (l = begin; l < end; ++l) {
      body += lines[l].kind;
      body += lines[l].text;
      if (!lines[l].text.ends_with('\n')) body += "\n\\ No newline at end of file\n";
      if (lines[l].kind != '+') ++num_old;
      if (lines[l].kind != '-') ++num_new;
    }
    diff += fmt::format("@@ -{} +{} @@\n{}", range_of(old_line, num_old), range_of(new_line, num_new), body);
    old_line += num_old;
    new_line += num_new;
  }
  return diff;
}

}  // namespace fsdp::text
