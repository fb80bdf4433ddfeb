#pragma once

// The report as JSON: the contract for scripts, the same for predicted and measured steps, so that they can be
// compared. Bytes are integers, times are numbers of seconds, and nothing depends on the clock or the machine.
// docs/file_formats.md describes it, `report_schema()` is its schema.

#include <string>
#include <string_view>

#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "core/report/report_additions.h"

namespace fsdp {

/// Within a major version, keys may be added, but not renamed or removed.
inline constexpr std::string_view kReportFormatVersion = "1.0";

/// The text of a report. With `cluster`, its plan is a complete plan file. Omits unknown parts: the plan of a script,
/// the times of a stub GPU.
std::string to_json(const StepReport& report, const ReportAdditions& additions = {}, const Cluster* cluster = nullptr);

/// The text of a comparison by itself, as `compare` prints it.
std::string to_json(const Comparison& comparison);

/// The text of `fsdp-plan schema report` and of model_specs/schemas/report.schema.json.
std::string report_schema();

}  // namespace fsdp
