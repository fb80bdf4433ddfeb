#pragma once

// The report as JSON: the contract for scripts, the same for predicted and measured steps, so that two of them can be
// compared. Bytes are integers, times are numbers of seconds, and nothing depends on the clock or the machine.
// docs/file_formats.md describes it, model_specs/schemas/report.schema.json is its schema.

#include <string_view>

#include "core/base/json_writer.h"
#include "core/cluster/cluster.h"
#include "core/report/report.h"

namespace fsdp {

/// Keys may be added within a major version, never renamed or dropped.
inline constexpr std::string_view kReportFormatVersion = "1.0";

/// Writes the members of a report's object, `format_version` first. With `cluster`, its plan is a whole plan file. What
/// a report does not know is left out: the plan of a script, the times of a stub GPU. REQUIRES: an object has been
/// begun; the caller may add members of its own and ends it.
void write_report_members(JsonWriter& writer, const StepReport& report, const Cluster* cluster = nullptr);

/// Writes the member `rehearsal`.
void write_rehearsal(JsonWriter& writer, const Rehearsal& rehearsal);

}  // namespace fsdp
