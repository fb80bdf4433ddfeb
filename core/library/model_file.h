#pragma once

// Reads every kind of model: a spec, a captured model, or a model of Hugging Face by its folder or its config.json.

#include <string>

#include "core/base/result.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Reads a model from a file, a folder with a config.json, or "-", the standard input. If weights lie beside a
/// config.json, compares the headers of their safetensors files with it. Error: all faults of the file; weights whose
/// shapes differ from the configuration's; one sentence about the kind of a file, or the contents of a folder, that is
/// not a model.
Result<ModelSpec> read_model_file(const std::string& path);

}  // namespace fsdp
