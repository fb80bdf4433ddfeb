#pragma once

// The lists of fields of a report, for report_json.h, report_reader.h and the schema.

#include "core/base/written_fields.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"
#include "core/report/report.h"
#include "core/report/report_additions.h"

namespace fsdp {

// The parts of a report, each in its own file. The const overloads write.
void fields_of(Fields& fields, Rehearsal& rehearsal);
void fields_of(Fields& fields, const Rehearsal& rehearsal);
void fields_of(Fields& fields, Comparison& comparison);
void fields_of(Fields& fields, const Comparison& comparison);

// All fields but the commands' additions, `format_version` first. With `cluster`, the plan is a complete plan file.
void report_fields(Fields& fields, StepReport& report);
void report_fields(Fields& fields, const StepReport& report, const Cluster* cluster);
// The fields of the additions.
void addition_fields(Fields& fields, ReportAdditions& additions);
void addition_fields(Fields& fields, const ReportAdditions& additions);

}  // namespace fsdp
