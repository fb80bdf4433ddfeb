#pragma once

// The answer of a rehearsal as one HTML page, to save and to share.

#include <string>

#include "core/report/report.h"
#include "text/document.h"

namespace fsdp::render {

/// A self-contained HTML page: the text of `document`, the curve of memory over a step, and the categories at the
/// peak as pictures. Follows the reader's light or dark setting. REQUIRES: a report with a rehearsal.
std::string page_of(const StepReport& report, const text::Document& document);

}  // namespace fsdp::render
