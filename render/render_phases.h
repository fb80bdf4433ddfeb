#pragma once

// The phases of a job, as --phases prints them.

#include <string>
#include <vector>

#include "core/report/job_phases.h"
#include "core/report/report_additions.h"
#include "text/document.h"

namespace fsdp::render {

/// A table with a row for each phase, and the verdict of all. `budget`: the memory of the device.
void add_phases(text::Document& document, const std::vector<JobPhaseNeed>& phases, Bytes budget);

/// The same for JSON.
std::vector<PhaseAddition> phase_additions(const std::vector<JobPhaseNeed>& phases);

}  // namespace fsdp::render
