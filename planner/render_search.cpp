#include "planner/render_search.h"

#include <fmt/format.h>

#include "planner/render_plan.h"

namespace fsdp::planner {

namespace {

std::string describe(const Proof& proof) {
  std::string text =
      fmt::format("{} in the space, {} predicted in full", counted(proof.space, "plan"), grouped(proof.evaluated));
  for (const RuledOut& reason : proof.ruled_out) {
    text += fmt::format(" · {} ruled out: {}", grouped(reason.plans), reason.reason);
  }
  text += proof.optimality_gap == 0
              ? " · no plan of the space is better (gap 0 %)"
              : fmt::format(" · stopped early: a better plan may be up to {:.1f} % faster", proof.optimality_gap * 100);
  return text;
}

Table table_of(const std::string& name, const std::string& title, const std::vector<Candidate>& candidates,
               bool with_missing) {
  Table table{.name = name,
              .columns = {{title, "plan"}, {"device", "device_peak_bytes", true}, {"step", "step", true}}};
  if (with_missing) table.columns.push_back({"missing", "missing_bytes", true});
  for (const Candidate& candidate : candidates) {
    table.rows.push_back({candidate.label, cell(candidate.device_peak), cell(candidate.step)});
    if (with_missing) table.rows.back().push_back(cell(candidate.missing));
  }
  return table;
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

void add_explanation(Document& document, const Explanation& explanation) {
  if (!explanation.binding.empty()) {
    document.push_back(Entry{.label = "why", .lines = {explanation.binding}});
  }
  if (!explanation.rejected.empty()) {
    document.push_back(table_of("faster", "but does not fit", explanation.rejected, true));
  }
  Table table{.name = "next",
              .columns = {{"what if", "what"},
                          {"memory", "delta_bytes", true},
                          {"step", "delta_seconds", true},
                          {"then it", "verdict"},
                          {"option", "flag"}}};
  for (const Remedy& remedy : explanation.remedies) {
    table.rows.push_back({remedy.what, signed_cell(remedy.delta_bytes), signed_cell(remedy.delta_time),
                          verdict_cell(remedy.verdict), remedy.flag});
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
  document.push_back(Entry{.label = "proof", .lines = {describe(result.proof)}});
  add_explanation(document, result.explanation);
  if (view.verbose && !result.pareto.empty()) {
    document.push_back(table_of("front", "least memory for its speed", result.pareto, false));
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
