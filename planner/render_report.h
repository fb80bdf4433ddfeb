#pragma once

// A report for people: the verdict first, then the plan, the peak and why, the traffic, the time, what was assumed.

#include "core/report.h"
#include "planner/render_document.h"

namespace fsdp::planner {

struct View {
  int width = 80;         ///< Columns that a picture may take; nothing else depends on it.
  bool pictures = false;  ///< Draw the memory of the step.
  bool verbose = false;   ///< All device terms, live tensors, phases and collectives.
};

/// FITS or DOES NOT FIT, with the peak and the step time, as one entry.
Entry verdict_of(const StepReport& report);

/// What decides the verdict, as one row of exact numbers for CSV.
Table summary_of(const StepReport& report);

/// The plan and where its peak is.
void add_plan_and_memory(Document& document, const StepReport& report, const View& view);
/// The traffic by kind and the time.
void add_traffic_and_time(Document& document, const StepReport& report, const View& view);
void add_assumptions(Document& document, const std::vector<std::string>& assumptions);

}  // namespace fsdp::planner
