#include "planner/render_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/name_ranges.h"
#include "planner/render_plan.h"

namespace fsdp::planner {

namespace {

std::string describe(const Proof& proof, Verdict verdict) {
  std::string text =
      fmt::format("{} in the space, {} predicted in full", counted(proof.space, "plan"), grouped(proof.evaluated));
  for (const RuledOut& reason : proof.ruled_out) {
    text += fmt::format(" · {} ruled out: {}", grouped(reason.plans), reason.reason);
  }
  const std::string_view claim = verdict == Verdict::DoesNotFit ? "fits" : "is better";
  text += proof.optimality_gap == 0
              ? fmt::format(" · no plan of the space {} (gap 0 %)", claim)
              : fmt::format(" · stopped early: a better plan may be up to {:.1f} % faster", proof.optimality_gap * 100);
  return text;
}

constexpr std::size_t kMostRemedies = 6;
constexpr std::size_t kMostRejected = 3;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

Table table_of(const std::string& name, const std::string& title, const std::vector<Candidate>& candidates,
               bool with_missing, std::size_t most) {
  Table table{.name = name,
              .columns = {{title, "plan"}, {"device", "device_peak_bytes", true}, {"step", "step", true}}};
  if (with_missing) table.columns.push_back({"missing", "missing_bytes", true});
  for (const Candidate& candidate : candidates) {
    if (table.rows.size() == most) break;
    table.rows.push_back({candidate.label, cell(candidate.device_peak), cell(candidate.step)});
    if (with_missing) table.rows.back().push_back(cell(candidate.missing));
  }
  return table;
}

/// An option with rows of names folded: shells expand "{0..14}" to the same words.
std::string folded(const std::string& flag) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= flag.size();) {
    const std::size_t end = std::min(flag.find(' ', begin), flag.size());
    words.push_back(flag.substr(begin, end - begin));
    begin = end + 1;
  }
  return fmt::format("{}", fmt::join(fold_names(words), " "));
}

Cell verdict_cell(Verdict verdict) {
  switch (verdict) {
    case Verdict::Fits:
      return {"fits", "fits", Style::Good};
    case Verdict::DoesNotFit:
      return {"does not fit", "does_not_fit", Style::Bad};
    case Verdict::Unknown:
      break;
  }
  return {"unknown", "unknown", Style::Warning};
}

void add_next(Document& document, const std::vector<std::string>& next_commands) {
  if (!next_commands.empty()) document.push_back(Entry{.label = "see", .lines = next_commands});
}

}  // namespace

void add_explanation(Document& document, const Explanation& explanation, bool verbose) {
  if (verbose && !explanation.binding.empty()) {
    document.push_back(Entry{.label = "why", .lines = {explanation.binding}});
  }
  if (!explanation.rejected.empty()) {
    document.push_back(
        table_of("faster", "but does not fit", explanation.rejected, true, verbose ? kAll : kMostRejected));
  }
  Table table{.name = "next",
              .columns = {{"what if", "what"},
                          {"memory", "delta_bytes", true},
                          {"step", "delta_seconds", true},
                          {"then it", "verdict"},
                          {"option", "flag"}}};
  for (const Remedy& remedy : explanation.remedies) {
    if (!verbose && table.rows.size() == kMostRemedies) break;
    table.rows.push_back({remedy.what, signed_cell(remedy.delta_bytes), signed_cell(remedy.delta_time),
                          verdict_cell(remedy.verdict), folded(remedy.flag)});
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

Document document_of(const SearchResult& result, const View& view, const std::vector<std::string>& next_commands) {
  const StepReport& report = result.report;
  Document document = {verdict_of(report), summary_of(report)};
  if (result.verdict == Verdict::DoesNotFit) {
    document.push_back(Entry{.label = "", .lines = {"No plan fits. The one below needs the least memory."}});
  }
  add_plan_and_memory(document, report, view);
  add_traffic_and_time(document, report, view);
  document.push_back(Entry{.label = "proof", .lines = {describe(result.proof, result.verdict)}});
  add_explanation(document, result.explanation, view.verbose);
  if (view.verbose && !result.pareto.empty()) {
    document.push_back(table_of("front", "least memory for its speed", result.pareto, false, kAll));
  }
  if (!result.notes.empty()) document.push_back(Entry{.label = "note", .lines = result.notes});
  add_assumptions(document, report.assumptions);
  add_next(document, next_commands);
  return document;
}

Document document_of(const StepReport& report, const View& view, const std::vector<std::string>& next_commands) {
  Document document = {verdict_of(report), summary_of(report)};
  add_plan_and_memory(document, report, view);
  add_traffic_and_time(document, report, view);
  add_assumptions(document, report.assumptions);
  add_next(document, next_commands);
  return document;
}

}  // namespace fsdp::planner
