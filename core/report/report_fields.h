#pragma once

// The lists of fields of a report: what report_json.h writes, what report_reader.h reads, and the schema of both.

#include "core/base/written_fields.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"
#include "core/report/report.h"
#include "core/report/report_additions.h"

namespace fsdp {

// The parts of a report, each in a file of its own. The const ones write.
void fields_of(Fields& fields, Rehearsal& rehearsal);
void fields_of(Fields& fields, const Rehearsal& rehearsal);
void fields_of(Fields& fields, Comparison& comparison);
void fields_of(Fields& fields, const Comparison& comparison);

// All but what the commands add, `format_version` first. With `cluster`, the plan is a whole plan file.
void report_fields(Fields& fields, StepReport& report);
void report_fields(Fields& fields, const StepReport& report, const Cluster* cluster);
// The fields of the additions.
void addition_fields(Fields& fields, ReportAdditions& additions);
void addition_fields(Fields& fields, const ReportAdditions& additions);

}  // namespace fsdp
