#pragma once

// The release of PyTorch in a plan file.

#include <string>

#include "core/base/json_document.h"
#include "core/base/object_reader.h"
#include "core/plan/runtime.h"

namespace fsdp {

/// Reads a release, by its name or with its patch, and gives the runtime its quirks. False, with an error: it is not
/// known.
bool read_torch_version(const JsonValue& value, Runtime& runtime, JsonErrors& errors);

/// All that it reads, in the schema language.
std::string schema_of_torch_versions();

}  // namespace fsdp
