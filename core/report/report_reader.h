#pragma once

// Reads reports back, for `fsdp-plan compare` and for the explorer's overlay.

#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/report/report.h"

namespace fsdp {

/// A report without its plan. Checks everything in its schema, including the commands' additions (report_additions.h),
/// which are not returned. Ignores unknown keys, because newer programs of the same major version may add some. Error:
/// all its faults, another major version.
Result<StepReport> read_report(const JsonDocument& document);
Result<StepReport> read_report_file(const std::string& path);

}  // namespace fsdp
