#pragma once

// A project: the user's decisions as a file. Versioned JSON, written whole or not at all; docs/file_formats.md
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

/// Errors: everything that is wrong with the text, with its places; unknown options, with the nearest one. An option
/// whose own text cannot be read is no error: a window shows it as it was typed.
Result<Inputs> parse_project(std::string text, const std::string& name);

/// Errors: those of parse_project, and those of reading.
Result<Inputs> read_project(const std::string& path);
Result<void> write_project(const std::string& path, const Inputs& inputs);

/// Whether the file is the text of a project, valid or not.
bool is_project(const std::string& path);

}  // namespace fsdp::gui
