#pragma once

// The answer of a rehearsal as one page for a browser, to keep and to pass on.

#include <string>

#include "core/report/report.h"
#include "text/document.h"

namespace fsdp::planner {

/// A page of HTML that needs no other file: what `document` says, with the curve of memory over a step and the
/// categories at the peak as pictures. Light or dark as the reader's system is. REQUIRES: a report with a rehearsal.
std::string page_of(const StepReport& report, const Document& document);

}  // namespace fsdp::planner
