#include "render/render_comparison.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/base/json_writer.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

Cell value_cell(const ComparedTerm& term, std::int64_t value) {
  if (term.unit == TermUnit::Bytes) return cell(Bytes(value));
  return {grouped(value), fmt::format("{}", value)};
}

Cell difference_cell(const ComparedTerm& term) {
  if (term.difference() == 0) return {"0", "0"};
  if (term.unit == TermUnit::Count)
    return {fmt::format("{:+}", term.difference()), fmt::format("{}", term.difference())};
  Cell shown = signed_cell(Bytes(term.difference()));
  shown.style = Style::Plain;
  return shown;
}

Style style_of(const ComparedTerm& term, double tolerance) {
  if (term.difference() == 0) return Style::Good;
  return std::abs(term.relative()) <= tolerance ? Style::Plain : Style::Bad;
}

}  // namespace

std::string relative_text(const ComparedTerm& term) {
  if (term.difference() == 0) return "exact";
  if (!std::isfinite(term.relative())) return "none measured";
  const double percent = term.relative() * 100;
  // A difference of one byte must not read as none.
  if (std::abs(percent) < 0.005) return percent > 0 ? "< +0.01 %" : "> -0.01 %";
  return fmt::format("{:+.{}f} %", percent, std::abs(percent) < 9.995 ? 2 : 1);
}

void add_comparison(Document& document, const Comparison& comparison, double tolerance, std::size_t most,
                    const std::string& first, const std::string& second) {
  Table table{.name = "compare",
              .columns = {{"term", "term"},
                          {first, "predicted", true},
                          {second, "measured", true},
                          {"difference", "difference", true},
                          {"relative", "relative", true}}};
  std::size_t left_out = 0;
  for (const ComparedTerm& term : comparison.terms) {
    if (table.rows.size() == most) {
      ++left_out;
      continue;
    }
    const std::string exact = std::isfinite(term.relative()) ? shortest(term.relative()) : "";
    table.rows.push_back({term.name,
                          value_cell(term, term.predicted),
                          value_cell(term, term.measured),
                          difference_cell(term),
                          {relative_text(term), exact, style_of(term, tolerance)}});
  }
  document.push_back(std::move(table));
  if (left_out > 0) {
    const std::string worst = relative_text(comparison.terms[most]);
    document.push_back(
        Entry{.label = "",
              .lines = {fmt::format("{} more, {}", grouped(static_cast<std::int64_t>(left_out)),
                                    worst == "exact" ? "all exact" : fmt::format("none off by more than {}", worst))}});
  }
  if (!comparison.notes.empty()) {
    document.push_back(Entry{.label = "beware", .lines = comparison.notes, .style = Style::Warning});
  }
}

}  // namespace fsdp::planner
