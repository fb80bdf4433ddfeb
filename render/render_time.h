#pragma once

// Where the time of a step goes, for people and for scripts.

#include <string>

#include "core/report/report.h"
#include "planner/advice/time_changes.h"
#include "text/document.h"

namespace fsdp::planner {

Document document_of(const StepReport& report, const TimeExplanation& explanation);

/// The text of `explain --time --json`; docs/file_formats.md says what the keys mean.
std::string to_json(const StepReport& report, const TimeExplanation& explanation);

}  // namespace fsdp::planner
