#pragma once

// Two reports side by side, for people.

#include "core/report/compare.h"
#include "text/document.h"

namespace fsdp::render {

/// "+1.7 %", "none measured".
std::string relative_text(const ComparedTerm& term);

/// The terms, worst first, and reasons why the two may not be comparable. Marks terms that differ by more than
/// `tolerance`, or without one by more than their own limits. `most`: number of rows shown.
void add_comparison(text::Document& document, const Comparison& comparison, double tolerance, std::size_t most,
                    const std::string& first = "predicted", const std::string& second = "measured");
void add_comparison(text::Document& document, const Comparison& comparison, std::size_t most);

}  // namespace fsdp::render
