#pragma once

// The parts of a record about the script's actions: wrappers, optimizers, collectives, lines of Python, limits. Read
// by runs/rehearse_record.cpp.

#include <string>
#include <string_view>
#include <vector>

#include "core/base/object_reader.h"
#include "core/report/report.h"
#include "runs/rehearse_record.h"

namespace fsdp::runs {

/// A member that may be missing or null; `nullptr` if so.
const JsonValue* value_unless_null(ObjectReader& object, std::string_view key);
/// The largest size and the largest count in a record, far above any device: sums over a whole document still fit
/// 64 bits.
inline constexpr IntegerRange kRecordedBytes{0, std::int64_t{1} << 40};
inline constexpr IntegerRange kRecordedCount{0, std::int64_t{1} << 40};

/// A required size.
void read_bytes(ObjectReader& object, std::string_view key, Bytes& out);
/// A text that may be missing or null.
void read_text(ObjectReader& object, std::string_view key, std::string& out);

/// A phase; unknown if the file has none or an empty name.
void read_phase(ObjectReader& object, std::string_view key, StepPhase& out);

void read_place(const JsonValue& value, PythonFrame& frame, JsonErrors& errors);
void read_stack(const JsonValue& value, std::vector<PythonFrame>& stack, JsonErrors& errors);
void read_failed_allocation(const JsonValue& value, FailedAllocation& failed, JsonErrors& errors);
void read_sites(const JsonValue& value, std::vector<AllocationSite>& sites, JsonErrors& errors);
/// Bytes by category, largest first.
void read_categories(const JsonValue& value, std::vector<PeakCategory>& categories, JsonErrors& errors);

void read_collectives(const JsonValue& value, std::vector<Collective>& collectives, JsonErrors& errors);
void read_applied(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors);
void read_warnings(const JsonValue& value, std::vector<RehearsalWarning>& warnings, JsonErrors& errors);
void read_limits(const JsonValue& value, RehearsalLimits& limits, JsonErrors& errors);

}  // namespace fsdp::runs
