#pragma once

// The answer to a search or about a given plan: the short one of render/render_brief.h, or all of it with the proof,
// the remedies, the nearest rejected plans and the Pareto front.

#include <string>

#include "planner/search/search.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::render {

/// The answer, verdict first.
text::Document document_of(const planner::SearchResult& result, const View& view, const AnswerContext& context);

/// The answer about a given plan. `explanation`: what explain adds; may be empty.
text::Document document_of(const StepReport& report, const planner::Explanation& explanation, const View& view,
                           const AnswerContext& context);

/// The nearest faster plans and the remedies for the peak; with `verbose` also the reasons of the peak, and all
/// remedies.
void add_explanation(text::Document& document, const planner::Explanation& explanation, bool verbose);

/// "fits", "fits, tight", "does not fit".
text::Cell verdict_cell(Verdict verdict, bool is_tight);

/// The text of a progress line: "searching: 12,345 of 73,530 plans ruled out or predicted, at least 3.90 s".
std::string text_of(const planner::SearchProgress& progress);

}  // namespace fsdp::render
