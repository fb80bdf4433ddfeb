#pragma once

// The answer to a search, or of a plan that was given: the short one of render/render_brief.h, or all of it with the
// proof, the remedies, the nearest rejected plans and the Pareto front.

#include <string>

#include "planner/search/search.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::planner {

/// The answer, verdict first.
Document document_of(const SearchResult& result, const View& view, const AnswerContext& context);

/// The same of a plan that was given. `explanation` has what explain adds; empty: nothing.
Document document_of(const StepReport& report, const Explanation& explanation, const View& view,
                     const AnswerContext& context);

/// The nearest faster plans and what would lower the peak; with `verbose` also why it is where it is, and all remedies.
void add_explanation(Document& document, const Explanation& explanation, bool verbose);

/// "fits", "fits, tight", "does not fit".
Cell verdict_cell(Verdict verdict, bool is_tight);

/// The text of a progress line: "searching: 12,345 of 73,530 plans ruled out or predicted, at least 3.90 s".
std::string text_of(const SearchProgress& progress);

}  // namespace fsdp::planner
