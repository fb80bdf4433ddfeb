#include "render/render_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "planner/check/rules.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

using planner::Finding;
using planner::Severity;

constexpr Severity kSeverities[] = {Severity::Error, Severity::Warning, Severity::Note};

text::Style style_of(Severity severity) {
  return severity == Severity::Error     ? text::Style::Bad
         : severity == Severity::Warning ? text::Style::Warning
                                         : text::Style::Faint;
}

std::string verdict_of(const CheckAnswer& answer) {
  std::vector<std::string> counts;
  for (const Severity severity : kSeverities) {
    const int count = answer.count(severity);
    if (count > 0) counts.push_back(text::counted(count, planner::name_of(severity)));
  }
  const std::vector<std::string_view> views(counts.begin(), counts.end());
  const std::vector<std::string_view> files(answer.files.begin(), answer.files.end());
  return fmt::format("{} in {}.", counts.empty() ? "No known mistake" : join_names(views), join_names(files));
}

text::Entry entry_of(const Finding& finding, bool verbose) {
  text::Entry entry{.label = std::string(planner::name_of(finding.severity)),
                    .lines = {fmt::format("{} [{}]", text_of(finding.place), finding.rule), finding.what},
                    .style = style_of(finding.severity)};
  if (finding.cost) {
    entry.lines.push_back(fmt::format("It takes {} {}.", format_bytes(*finding.cost), finding.cost_of));
  }
  const std::string mend = text_of(finding.mend);
  if (!mend.empty()) {
    entry.lines.push_back(finding.mend.how == planner::Mend::How::Replace ? fmt::format("Write {}", mend) : mend);
  }
  if (verbose) {
    const planner::Rule& rule = planner::rule_named(finding.rule);
    entry.lines.push_back(fmt::format("As in {}, {}.", rule.release, rule.source));
  }
  return entry;
}

text::Table table_of(const CheckAnswer& answer) {
  text::Table table{.name = "check",
                    .columns = {{"severity", "severity"},
                                {"rule", "rule"},
                                {"file", "file"},
                                {"line", "line", true},
                                {"column", "column", true},
                                {"key", "pointer"},
                                {"what", "what"},
                                {"mend", "mend"}},
                    .only_for_scripts = true};
  for (const Finding& finding : answer.findings) {
    table.rows.push_back({std::string(planner::name_of(finding.severity)), std::string(finding.rule),
                          finding.place.file, text::cell(finding.place.line), text::cell(finding.place.column),
                          finding.place.pointer, finding.what, text_of(finding.mend)});
  }
  return table;
}

}  // namespace

int CheckAnswer::count(Severity severity) const {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [&](const Finding& finding) { return finding.severity == severity; }));
}

text::Document document_of(const CheckAnswer& answer, bool quiet, bool verbose) {
  const bool fails = answer.count(Severity::Error) > 0;
  const bool warns = answer.count(Severity::Warning) > 0;
  text::Document document = {text::Entry{.label = fails   ? "MISTAKES"
                                                  : warns ? "WARNINGS"
                                                          : "CLEAN",
                                         .lines = {verdict_of(answer)},
                                         .style = fails   ? text::Style::Bad
                                                  : warns ? text::Style::Warning
                                                          : text::Style::Good}};
  if (quiet) return document;
  for (const Finding& finding : answer.findings) document.push_back(entry_of(finding, verbose));
  document.push_back(table_of(answer));
  return document;
}

}  // namespace fsdp::render
