// Every block of the document becomes a section, in order, so that the page has the terminal's text. Pictures made of
// characters are omitted. Instead, after the verdict come the curve, as an area over the step with a line at the start
// of each phase, and a bar of the categories. Pictures have titles, with the figures beside them as text.
//
// Colors: the page's own; for the categories those of Okabe and Ito, which people with color blindness can distinguish.
//
// Sources: Okabe, Ito, Color Universal Design (2008).

#include "render/render_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/base/parse_units.h"
#include "render/render_rehearsal.h"

namespace fsdp::render {

namespace {

constexpr int kWidth = 900;  // Width of a picture, in its own units.
constexpr int kHeight = 220;
constexpr int kBarHeight = 28;
constexpr int kPhaseRow = 18;  // Above the curve, for the names of phases.

constexpr std::array<std::string_view, 6> kColors = {"#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#7f7f7f"};

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --line: #d0d7de; --page: #ffffff; --area: #9ec5e8;
        --edge: #0072b2; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --soft: #9198a1; --line: #3d444d; --page: #0d1117; --area: #1f4a70; --edge: #58a6ff;
          --good: #3fb950; --bad: #f85149; --warn: #d29922; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--page); color: var(--text);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; } h2 { font-size: .95rem; margin: 1.6rem 0 .3rem; color: var(--soft); }
p { margin: .15rem 0; } .good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); } .number { text-align: right; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.area { fill: var(--area); stroke: var(--edge); } .mark { stroke: var(--line); } .key { white-space: nowrap;
       margin-right: 1.2rem; } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
)";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string_view class_of(text::Style style) {
  switch (style) {
    case text::Style::Good:
      return " class=\"good\"";
    case text::Style::Bad:
      return " class=\"bad\"";
    case text::Style::Warning:
      return " class=\"warn\"";
    default:
      return "";
  }
}

std::string html_of(const text::Entry& entry, bool is_first) {
  const std::string_view tag = is_first ? "h1" : "h2";
  std::string html;
  if (!entry.label.empty())
    html += fmt::format("<{0}{1}>{2}</{0}>\n", tag, class_of(entry.style), escaped(entry.label));
  for (const std::string& line : entry.lines) html += fmt::format("<p>{}</p>\n", escaped(line));
  return html;
}

std::string html_of(const text::Table& table) {
  std::string html = fmt::format("<h2>{}</h2>\n<div class=\"scroll\"><table>\n<tr>", escaped(table.name));
  const auto side = [](const text::Column& column) { return column.numeric ? " class=\"number\"" : ""; };
  for (const text::Column& column : table.columns)
    html += fmt::format("<th{}>{}</th>", side(column), escaped(column.title));
  html += "</tr>\n";
  for (const std::vector<text::Cell>& row : table.rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      html += fmt::format("<td{}><span{}>{}</span></td>", side(table.columns[i]), class_of(row[i].style),
                          escaped(row[i].text));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

double share(Bytes part, Bytes whole) {
  return whole.count() == 0 ? 0 : static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

/// The area of allocated bytes over a step; empty if no step was recorded.
std::string curve_of(const MemoryReport& memory) {
  const std::vector<Bytes>& points = memory.live_over_step;
  if (points.empty()) return {};
  const Bytes top = std::max(*std::max_element(points.begin(), points.end()), Bytes(1));
  const auto x_of = [&](std::size_t i) {
    return kWidth * static_cast<double>(i) / static_cast<double>(std::max<std::size_t>(points.size(), 1));
  };
  const double base = kPhaseRow + kHeight;
  std::string path = fmt::format("M0,{:.1f}", base);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double y = base - kHeight * share(points[i], top);
    path += fmt::format("L{:.1f},{:.1f}L{:.1f},{:.1f}", x_of(i), y, x_of(i + 1), y);
  }
  path += fmt::format("L{},{:.1f}Z", kWidth, base);
  std::string svg = fmt::format(
      "<h2>memory over a step, at most {0}</h2>\n<svg viewBox=\"0 0 {1} {2:.0f}\" role=\"img\"><title>Allocated bytes "
      "over "
      "a step, at most {0}</title>\n<path class=\"area\" d=\"{3}\"/>\n",
      escaped(format_bytes(top)), kWidth, base + 2, path);
  double free_from = 0;  // The left end of free room for the next phase's name.
  for (const PhaseMark& mark : memory.phase_marks) {
    if (mark.index < 0 || mark.index >= static_cast<std::int64_t>(points.size())) continue;
    const double x = x_of(static_cast<std::size_t>(mark.index));
    svg += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\"/>\n", x, kPhaseRow,
                       base);
    if (x < free_from) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"12\">{}</text>\n", x, escaped(name_of(mark.phase)));
    free_from = x + 8.0 * static_cast<double>(name_of(mark.phase).size());
  }
  return svg + "</svg>\n";
}

/// One bar of all categories, and the meaning of each color.
std::string bar_of(const std::vector<PeakCategory>& categories) {
  Bytes total;
  for (const PeakCategory& each : categories) total += each.bytes;
  if (total <= Bytes(0)) return {};
  std::string svg = fmt::format(
      "<h2>at the peak, by what it is for</h2>\n<svg viewBox=\"0 0 {} {}\" role=\"img\"><title>Categories at the "
      "peak</title>\n",
      kWidth, kBarHeight);
  std::string keys;
  double x = 0;
  for (std::size_t i = 0; i < categories.size(); ++i) {
    const PeakCategory& each = categories[i];
    const std::string_view color = kColors[std::min(i, kColors.size() - 1)];
    const double width = kWidth * share(each.bytes, total);
    const std::string text =
        fmt::format("{} {} ({:.0f} %)", each.name, format_bytes(each.bytes), 100 * share(each.bytes, total));
    svg += fmt::format("<rect x=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>\n", x,
                       width, kBarHeight, color, escaped(text));
    keys += fmt::format("<span class=\"key\"><i style=\"background:{}\"></i>{}</span>\n", color, escaped(text));
    x += width;
  }
  return svg + "</svg>\n<p>" + keys + "</p>\n";
}

}  // namespace

std::string page_of(const StepReport& report, const text::Document& document) {
  const std::string verdict = rehearsal_verdicts(report, nullptr).front().label;
  std::string body;
  for (std::size_t i = 0; i < document.size(); ++i) {
    const text::Entry* entry = std::get_if<text::Entry>(&document[i]);
    const text::Table* table = std::get_if<text::Table>(&document[i]);
    if (table != nullptr && !table->only_for_scripts) body += html_of(*table);
    if (entry != nullptr && !entry->is_picture) body += html_of(*entry, i == 0);
    if (entry != nullptr && entry->label == verdict)
      body += curve_of(report.memory) + bar_of(report.rehearsal->categories);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{} on "
      "{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escaped(report.model), escaped(report.gpu), kStyle, body);
}

}  // namespace fsdp::render
