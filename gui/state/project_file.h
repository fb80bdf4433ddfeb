#pragma once

// A project: what the user decided, as a file. Versioned JSON, written whole or not at all; docs/file_formats.md
// describes it.

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "gui/state/inputs.h"

namespace fsdp::gui {

/// The version that this program writes. It reads files of the same major version that are not newer.
inline constexpr std::string_view kProjectFormatVersion = "1.0";
/// The ending of project files.
inline constexpr std::string_view kProjectEnding = ".fsdp-project.json";

std::string project_text(const Inputs& inputs);

/// Errors: everything that is wrong with the text, with its places; options that do not exist, with the nearest one. An
/// option whose own text cannot be read is no error: a window shows it as it was typed.
Result<Inputs> parse_project(std::string text, const std::string& name);

/// Errors: as parse_project, and those of reading.
Result<Inputs> read_project(const std::string& path);
Result<void> write_project(const std::string& path, const Inputs& inputs);

/// True for the text of a project, whatever else may be wrong with it.
bool is_project(const std::string& path);

}  // namespace fsdp::gui
