#pragma once

// The plan file: a plan as JSON that people read, edit and keep in git. One unit a line, rows of equal units folded
// into one line, every choice written out, nothing that depends on the clock or the machine. docs/file_formats.md
// describes it, model_specs/schemas/plan.schema.json is its schema.

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/plan/plan.h"

namespace fsdp {

/// The version that this program writes. It reads files of the same major version that are not newer: a key that it
/// does not know could change what the plan means.
inline constexpr std::string_view kPlanFormatVersion = "1.0";

/// Writes the members of a plan's object, `format_version` first. REQUIRES: an object has been begun; the caller may
/// add members of its own (core/plan/plan_file.h adds `cluster`) and ends it.
void write_plan_members(JsonWriter& writer, const Plan& plan);

/// Reads the members that `write_plan_members` writes. Keys that another reader of the same object asks for are left
/// alone; unknown ones are reported by `object.finish()`, which the caller calls. Keys that had another spelling before
/// are still read; each adds a sentence to `notes`, if there are some.
void read_plan_members(ObjectReader& object, Plan& plan, std::vector<std::string>* notes = nullptr);

/// Whether a file's `format_version` can be read: the same major version as ours, and not newer.
bool is_readable_version(std::string_view version, std::string_view ours);

/// The JSON Schema of plans: what `fsdp-plan schema plan` prints and model_specs/schemas/plan.schema.json holds.
std::string plan_schema();

}  // namespace fsdp
