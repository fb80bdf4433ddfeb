#include "render/render_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

text::Cell value_cell(const ComparedTerm& term, std::int64_t value) {
  if (term.unit == TermUnit::Bytes) return text::cell(Bytes(value));
  return {text::grouped(value), fmt::format("{}", value)};
}

text::Cell difference_cell(const ComparedTerm& term) {
  if (term.difference() == 0) return {"0", "0"};
  if (term.unit == TermUnit::Count)
    return {fmt::format("{:+}", term.difference()), fmt::format("{}", term.difference())};
  text::Cell shown = text::signed_cell(Bytes(term.difference()));
  shown.style = text::Style::Plain;
  return shown;
}

/// "10 more, 2 of them not measured, none off by more than +1.2 %": the terms that do not fit into a table.
std::string rest_text(const std::vector<ComparedTerm>& rest) {
  const auto measured =
      std::find_if(rest.begin(), rest.end(), [](const auto& t) { return std::isfinite(t.relative()); });
  std::string text = fmt::format("{} more", text::grouped(static_cast<std::int64_t>(rest.size())));
  // Worst first, so that terms without a measurement come first.
  if (measured != rest.begin()) text += fmt::format(", {} of them not measured", measured - rest.begin());
  if (measured == rest.end()) return text;
  if (measured->difference() == 0) return text + (measured == rest.begin() ? ", all exact" : ", the others exact");
  return text + fmt::format(", none off by more than {}", relative_text(*measured));
}

/// The terms as a table of limited length, and a sentence about the others. `is_bad`: whether to mark a term that
/// differs.
template <class IsBad>
void add_terms(text::Document& document, const Comparison& comparison, std::size_t most, const std::string& first,
               const std::string& second, const IsBad& is_bad) {
  text::Table table{.name = "compare",
                    .columns = {{"term", "term"},
                                {first, "predicted", true},
                                {second, "measured", true},
                                {"difference", "difference", true},
                                {"relative", "relative", true}}};
  for (const ComparedTerm& term : comparison.terms) {
    if (table.rows.size() == most) break;
    const std::string exact = std::isfinite(term.relative()) ? shortest(term.relative()) : "";
    const text::Style style = term.difference() == 0 ? text::Style::Good
                              : is_bad(term)         ? text::Style::Bad
                                                     : text::Style::Plain;
    table.rows.push_back({term.name,
                          value_cell(term, term.predicted),
                          value_cell(term, term.measured),
                          difference_cell(term),
                          {relative_text(term), exact, style}});
  }
  document.push_back(std::move(table));
  if (comparison.terms.size() > most) {
    const auto rest = comparison.terms.begin() + static_cast<std::ptrdiff_t>(most);
    document.push_back(text::Entry{.label = "", .lines = {rest_text({rest, comparison.terms.end()})}});
  }
  if (!comparison.notes.empty()) {
    document.push_back(text::Entry{.label = "beware", .lines = comparison.notes, .style = text::Style::Warning});
  }
}

}  // namespace

std::string relative_text(const ComparedTerm& term) {
  if (term.difference() == 0) return "exact";
  if (!std::isfinite(term.relative())) return "none measured";
  const double percent = term.relative() * 100;
  // A difference of one byte must not read as zero.
  if (std::abs(percent) < 0.005) return percent > 0 ? "< +0.01 %" : "> -0.01 %";
  return fmt::format("{:+.{}f} %", percent, std::abs(percent) < 9.995 ? 2 : 1);
}

void add_comparison(text::Document& document, const Comparison& comparison, double tolerance, std::size_t most,
                    const std::string& first, const std::string& second) {
  add_terms(document, comparison, most, first, second,
            [&](const ComparedTerm& term) { return std::abs(term.relative()) > tolerance; });
}

void add_comparison(text::Document& document, const Comparison& comparison, std::size_t most) {
  add_terms(document, comparison, most, "predicted", "measured", [&](const ComparedTerm& term) {
    return std::find(comparison.beyond.begin(), comparison.beyond.end(), term.name) != comparison.beyond.end();
  });
}

}  // namespace fsdp::render
