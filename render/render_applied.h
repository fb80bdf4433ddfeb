#pragma once

// A script's real wrapping and collectives, the part of a rehearsal that surprises users most often.

#include "core/report/report.h"
#include "text/document.h"

namespace fsdp::render {

/// Wrappers, units, parameters, precision and optimizers. REQUIRES: a report with a rehearsal.
void add_applied(text::Document& document, const StepReport& report, bool verbose);

/// Collectives of a step by kind, type and number of ranks.
void add_measured_traffic(text::Document& document, const TrafficReport& traffic, bool verbose);

/// "8.03 G": a number of elements.
std::string elements_text(std::int64_t elements);

}  // namespace fsdp::render
