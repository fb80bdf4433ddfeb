#pragma once

// What a search found beside its report: the proof, the remedies, the nearest rejected plans, the Pareto front.

#include <string>

#include "planner/render_document.h"
#include "planner/render_report.h"
#include "planner/search.h"

namespace fsdp::planner {

/// The whole answer, verdict first. `next_commands` are printed last.
Document document_of(const SearchResult& result, const View& view, const std::vector<std::string>& next_commands);

/// The answer for a plan that was given, verdict first.
Document document_of(const StepReport& report, const View& view, const std::vector<std::string>& next_commands);

/// The nearest faster plans and what would lower the peak; with `verbose` also why it is where it is, and all remedies.
void add_explanation(Document& document, const Explanation& explanation, bool verbose);

}  // namespace fsdp::planner
