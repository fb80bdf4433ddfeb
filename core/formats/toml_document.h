#pragma once

// A TOML text as the same tree as JSON, with the position of every value. toml++ reads the text.

#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// Parses a text of TOML 1.0. Members are in the order of the text. Dates and times are strings. Errors: the first
/// syntax error, of which a key that appears twice is one; the limits of JsonDocument.
Result<JsonDocument> parse_toml(std::string text, std::string name);

/// Reads and parses a file; "-" is the standard input. Errors: those of `read_text_file` and `parse_toml`.
Result<JsonDocument> read_toml_file(const std::string& path);

}  // namespace fsdp
