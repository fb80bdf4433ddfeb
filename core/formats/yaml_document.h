#pragma once

// A YAML text as the same tree as JSON, with the position of every value.
//
// yaml-cpp reads the text. Trainers read theirs with PyYAML, whose plain words mean other things than in newer YAML:
// "yes" is true, "2e-5" is a string. This reader follows PyYAML.

#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// Parses one document as yaml.safe_load of PyYAML 6 does. An empty text is null. Dates are strings. Errors: the first
/// syntax error; duplicate keys, of which PyYAML silently keeps the last; keys that are not scalars; more than one
/// document; the limits of JsonDocument.
Result<JsonDocument> parse_yaml(std::string text, std::string name);

/// Reads and parses a file; "-" is the standard input. Errors: those of `read_text_file` and `parse_yaml`.
Result<JsonDocument> read_yaml_file(const std::string& path);

}  // namespace fsdp
