#pragma once

// The parts of a step's time, for people and for scripts.

#include <string>

#include "core/report/report.h"
#include "planner/advice/time_changes.h"
#include "text/document.h"

namespace fsdp::render {

text::Document document_of(const StepReport& report, const planner::TimeExplanation& explanation);

/// The text of `explain --time --json`; docs/file_formats.md describes the keys.
std::string to_json(const StepReport& report, const planner::TimeExplanation& explanation);

}  // namespace fsdp::render
