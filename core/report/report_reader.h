#pragma once

// Reads reports back: what `fsdp-plan compare` lines up.

#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/report/report.h"

namespace fsdp {

/// The figures of a report: kind, runtime, verdict, model, machines, memory (without live tensors and the curve) and
/// the totals of its traffic. Not read: the plan, the times, the search, what a rehearsal saw. Keys that are not known
/// are left alone, because newer programs of the same major version may add some. Error: everything that is wrong with
/// it, another major version.
Result<StepReport> read_report(const JsonDocument& document);
Result<StepReport> read_report_file(const std::string& path);

}  // namespace fsdp
