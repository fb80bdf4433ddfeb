#pragma once

// Reads reports back: what `fsdp-plan compare` lines up, and the explorer lays over a prediction.

#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/report/report.h"

namespace fsdp {

/// A report without its plan. Everything that its schema describes is checked, what the commands add included
/// (report_additions.h), which is not kept. Keys that are not known are left alone, because newer programs of the same
/// major version may add some. Error: everything that is wrong with it, another major version.
Result<StepReport> read_report(const JsonDocument& document);
Result<StepReport> read_report_file(const std::string& path);

}  // namespace fsdp
