#pragma once

// The results of a rehearsal, for people: the verdict, the applied wrapping, the memory by line of Python, the
// traffic, and warnings.

#include <optional>
#include <string>
#include <vector>

#include "core/report/compare.h"
#include "core/report/report.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::render {

/// Facts that differ from run to run and are therefore not in the report.
struct RunFacts {
  Seconds seconds{0};  ///< From the start of the first process to the end of the last.
  Bytes host_peak;     ///< Peak of the largest process.
};

struct RehearsalView {
  View view;
  const Comparison* comparison = nullptr;  ///< May be null.
  std::string folder;                      ///< Prefix removed from displayed paths.
};

/// FITS or OUT OF MEMORY. A run that fits but differs from `comparison` by more than its limits starts with
/// DIFFERS. `comparison`: with the prediction; may be null. REQUIRES: a report with a rehearsal, here and below.
std::vector<text::Entry> rehearsal_verdicts(const StepReport& report, const Comparison* comparison);

/// The peaks as one row of exact numbers for CSV.
text::Table rehearsal_summary(const StepReport& report);

/// The whole answer, verdict first.
text::Document document_of(const StepReport& report, const RunFacts& facts, const RehearsalView& view);

/// Sentences about limits of the figures, most important first.
std::vector<std::string> limits_of(const StepReport& report);

}  // namespace fsdp::render
