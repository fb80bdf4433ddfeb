#include "render/render_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/name_ranges.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "planner/space/batches.h"
#include "render/choice_words.h"
#include "render/render_phases.h"
#include "render/render_plan.h"
#include "render/render_policy.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

/// Claims about plans other than the named one.
std::string claim_of(const planner::Proof& proof, Verdict verdict, planner::SearchObjective objective) {
  if (!proof.is_proven) return "not proven: a lower bound of the search turned out wrong";
  if (proof.stopped_early) {
    return fmt::format("stopped early: a better plan may be up to {:.1f} % faster", proof.optimality_gap * 100);
  }
  if (verdict == Verdict::DoesNotFit) return "no plan of the space fits";
  if (objective == planner::SearchObjective::Memory)
    return "no plan of the space needs less, and none that needs as little is faster";
  const bool is_of_tokens = objective == planner::SearchObjective::Tokens;
  const std::string cut = proof.compared_ties ? "" : "; another as fast may need less memory";
  const std::string_view is_better = is_of_tokens ? "trains" : "is";
  const std::string_view more = is_of_tokens ? "samples a second" : "faster";
  if (proof.optimality_gap == 0) {
    return fmt::format("no plan of the space that fits {} {}{}{}", is_better, is_of_tokens ? "more " : "", more, cut);
  }
  const std::string saved =
      (proof.saved > Bytes(0) ? fmt::format("; the fastest needs {} more", format_bytes(proof.saved)) : "") + cut;
  return fmt::format("no plan of the space that fits {} more than {:.2f} % {}{}{}", is_better,
                     proof.optimality_gap * 100, is_of_tokens ? "more " : "", more, saved);
}

std::string describe(const planner::Proof& proof, Verdict verdict, planner::SearchObjective objective) {
  const auto sum_of = [&](std::string_view verdict_of_bound) {
    std::int64_t plans = 0;
    for (const planner::RuledOut& reason : proof.ruled_out) {
      if (reason.reason.starts_with(verdict_of_bound)) plans += reason.plans;
    }
    return plans;
  };
  return fmt::format("{} in the space: {} provably slower, {} provably too large, {} simulated in full · {}",
                     text::counted(proof.space, "plan"), text::grouped(sum_of("not better")),
                     text::grouped(sum_of("too large")), text::grouped(proof.evaluated),
                     claim_of(proof, verdict, objective));
}

/// Counts of plans by the bound that ruled them out, with the totals of the proof.
text::Table table_of(const planner::Proof& proof) {
  text::Table table{.name = "bounds", .columns = {{"ruled out", "reason"}, {"plans", "plans", true}}};
  for (const planner::RuledOut& reason : proof.ruled_out)
    table.rows.push_back({reason.reason, text::cell(reason.plans)});
  return table;
}

constexpr std::size_t kMostRemedies = 6;
constexpr std::size_t kRejectedRows = 3;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

text::Table table_of(const std::string& name, const std::string& title,
                     const std::vector<planner::Candidate>& candidates, bool with_missing, std::size_t most) {
  text::Table table{.name = name,
                    .columns = {{title, "plan"}, {"device", "device_peak_bytes", true}, {"step", "step", true}}};
  if (with_missing) table.columns.push_back({"missing", "missing_bytes", true});
  for (const planner::Candidate& candidate : candidates) {
    if (table.rows.size() == most) break;
    table.rows.push_back({candidate.label, text::cell(candidate.device_peak), text::cell(candidate.step)});
    if (with_missing) table.rows.back().push_back(text::cell(candidate.missing));
  }
  return table;
}

/// An option with folded ranges of names: shells expand "{0..14}" to the same words.
std::string folded(const std::string& flag) {
  const std::vector<std::string_view> parts = split(flag, ' ');
  const std::vector<std::string> words(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(fold_names(words), " "));
}

/// The price of each suggestion, for the plan with the change; and beside it the result of a search with its option, if
/// one ran.
text::Table table_of(const std::vector<planner::Remedy>& remedies, std::size_t most) {
  const bool has_searched = std::ranges::any_of(remedies, &planner::Remedy::is_searched);
  text::Table table{.name = "next",
                    .columns = {{"what if", "what"},
                                {"memory", "delta_bytes", true},
                                {"step", "delta_seconds", true},
                                {"verdict", "verdict"}}};
  if (has_searched) {
    table.columns.push_back({"searched", "searched_delta_bytes", true});
    table.columns.push_back({"step", "searched_delta_seconds", true});
  }
  table.columns.push_back({"option", "flag"});
  for (const planner::Remedy& remedy : remedies) {
    if (table.rows.size() == most) break;
    std::vector<text::Cell> row = {remedy.what};
    const std::optional<planner::RemedyPrice> price = remedy.is_searched ? remedy.same_plan : remedy.price();
    if (price) {
      row.insert(row.end(), {text::signed_cell(price->delta_bytes), text::signed_cell(price->delta_time),
                             verdict_cell(price->verdict, price->is_tight)});
    } else {
      row.insert(row.end(), {text::Cell{}, text::Cell{}, verdict_cell(remedy.verdict, remedy.is_tight)});
    }
    if (remedy.is_searched) {
      row.insert(row.end(), {text::signed_cell(remedy.delta_bytes), text::signed_cell(remedy.delta_time)});
    }
    row.resize(table.columns.size() - 1);
    row.push_back(folded(flags_of(remedy.change)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_next(text::Document& document, const AnswerContext& context) {
  if (!context.train.empty()) document.push_back(text::Entry{.label = "use", .lines = {context.train}});
  if (!context.commands.empty()) document.push_back(text::Entry{.label = "see", .lines = context.commands});
}

/// The objective, unless it is the fastest step, and its figure, unless the verdict has it.
std::string objective_of(const planner::SearchResult& result) {
  if (result.verdict != Verdict::Fits || !result.proof.is_proven) return "";
  switch (result.objective) {
    case planner::SearchObjective::Time:
      break;
    case planner::SearchObjective::Memory:
      return "Least memory: no plan needs less, and none as small is faster.";
    case planner::SearchObjective::Tokens: {
      const auto samples = static_cast<double>(planner::samples_of(result.best.plan)) / result.best.step.count();
      const Dimension* seq = find_dimension(result.best.plan.dimensions, "seq");
      const std::string tokens =
          seq == nullptr ? "" : fmt::format(" ({} tokens)", text::grouped(std::llround(samples * seq->value)));
      const double gap = result.proof.optimality_gap * 100;
      return fmt::format("Most samples: {:.3g} a second{}. With at most {} micro-batches a step, none trains {} more.",
                         samples, tokens, std::ranges::max(planner::kTriedAccumulations),
                         gap < 0.05 ? "any" : fmt::format("over {:.1f} %", gap));
    }
  }
  return "";
}

/// Facts of a search that a reader of its answer needs: that it ended early, or is not proven.
std::vector<std::string> brief_notes(const planner::SearchResult& result) {
  std::vector<std::string> notes = result.notes;
  if (const std::string objective = objective_of(result); !objective.empty()) notes.push_back(objective);
  if (!result.refinement.empty()) notes.push_back(result.refinement + ".");
  if (result.proof.stopped_early && result.proof.is_proven) {
    notes.push_back(fmt::format("The search stopped early: a better plan may be up to {:.1f} % faster.",
                                result.proof.optimality_gap * 100));
  }
  return notes;
}

}  // namespace

text::Cell verdict_cell(Verdict verdict, bool is_tight) {
  switch (verdict) {
    case Verdict::Fits:
      if (is_tight) return {"fits, tight", "fits_tight", text::Style::Warning};
      return {"fits", "fits", text::Style::Good};
    case Verdict::DoesNotFit:
      return {"does not fit", "does_not_fit", text::Style::Bad};
    case Verdict::Unknown:
      break;
  }
  return {"unknown", "unknown", text::Style::Warning};
}

void add_explanation(text::Document& document, const planner::Explanation& explanation, bool verbose) {
  if (verbose && !explanation.binding.empty()) {
    document.push_back(text::Entry{.label = "why", .lines = {explanation.binding}});
  }
  if (!explanation.rejected.empty()) {
    document.push_back(
        table_of("faster", "but does not fit", explanation.rejected, true, verbose ? kAll : kRejectedRows));
  }
  text::Table table = table_of(explanation.remedies, verbose ? kAll : kMostRemedies);
  if (table.rows.empty()) return;
  document.push_back(std::move(table));
  const bool has_searched = std::ranges::any_of(explanation.remedies, &planner::Remedy::is_searched);
  document.push_back(
      text::Entry{.label = "",
                  .lines = {fmt::format(
                      "Each is this plan with one change. `fsdp-plan simulate PLAN OPTION` repeats it, if it takes the "
                      "option; `fsdp-plan MODEL` with the option searches again, and gives that step time or less{}.",
                      has_searched ? "; \"searched\" has the result, if it was searched" : "")}});
}

text::Document document_of(const planner::SearchResult& result, const View& view, const AnswerContext& context) {
  const StepReport& report = result.report;
  AnswerContext with_facts = context;
  with_facts.facts = result.facts;
  with_facts.no_plan_fits = planner::no_plan_fits(result);
  if (view.brief) {
    text::Document brief = brief_of(report, result.explanation, brief_notes(result), with_facts, view.width);
    add_phases(brief, result.explanation.phases, report.memory.budget);
    return brief;
  }
  text::Document document = {verdict_of(report, with_facts.no_plan_fits), summary_of(report)};
  add_speed(document, report);
  add_plan_and_memory(document, report, with_facts.facts, with_facts.batch_origin, view);
  if (result.explanation.wrap) add_policy(document, *result.explanation.wrap);
  add_phases(document, result.explanation.phases, report.memory.budget);
  add_traffic_and_time(document, report, view);
  document.push_back(
      text::Entry{.label = "proof", .lines = {describe(result.proof, result.verdict, result.objective)}});
  if (view.verbose && !result.proof.ruled_out.empty()) document.push_back(table_of(result.proof));
  add_explanation(document, result.explanation, view.verbose);
  if (view.verbose && !result.pareto.empty()) {
    document.push_back(table_of("front", "least memory for its speed", result.pareto, false, kAll));
  }
  std::vector<std::string> notes = result.notes;
  if (const std::string objective = objective_of(result); !objective.empty()) notes.push_back(objective);
  if (!result.refinement.empty()) notes.push_back(result.refinement + ".");
  notes.insert(notes.end(), result.explanation.notes.begin(), result.explanation.notes.end());
  if (!notes.empty()) document.push_back(text::Entry{.label = "note", .lines = notes});
  add_assumptions(document, report.assumptions);
  add_next(document, with_facts);
  return document;
}

text::Document document_of(const StepReport& report, const planner::Explanation& explanation, const View& view,
                           const AnswerContext& context) {
  if (view.brief) {
    text::Document brief = brief_of(report, explanation, {}, context, view.width);
    add_phases(brief, explanation.phases, report.memory.budget);
    return brief;
  }
  text::Document document = {verdict_of(report), summary_of(report)};
  add_speed(document, report);
  add_explanation(document, explanation, view.verbose);
  add_plan_and_memory(document, report, context.facts, context.batch_origin, view);
  add_phases(document, explanation.phases, report.memory.budget);
  add_traffic_and_time(document, report, view);
  if (!explanation.notes.empty()) document.push_back(text::Entry{.label = "note", .lines = explanation.notes});
  add_assumptions(document, report.assumptions);
  add_next(document, context);
  return document;
}

std::string text_of(const planner::SearchProgress& progress) {
  const std::string plans = fmt::format("searching {}", text::counted(progress.space, "plan"));
  const std::string looked_at = fmt::format("{} looked at", text::grouped(progress.looked_at));
  switch (progress.stage) {
    case planner::SearchStage::Fastest:
      if (!progress.at_least) return fmt::format("{}: {}", plans, looked_at);
      return fmt::format("{}: none that fits is faster than {} ({})", plans, format_time(*progress.at_least),
                         looked_at);
    case planner::SearchStage::Smallest:
      if (!progress.needs) return fmt::format("{} for the smallest: {}", plans, looked_at);
      return fmt::format("{} for the smallest: none needs less than {} ({})", plans, format_bytes(*progress.needs),
                         looked_at);
    case planner::SearchStage::Front:
      return fmt::format("{} for smaller ones: {}", plans, looked_at);
    case planner::SearchStage::Remedies:
      return "pricing changes";
  }
  return "";
}

}  // namespace fsdp::render
