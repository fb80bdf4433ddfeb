#pragma once

// The door through which every model comes in: a spec, a captured model, or a model of Hugging Face, as its folder or
// its config.json.

#include <string>

#include "core/base/result.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Reads a model from a file, a folder with a config.json, or "-", the standard input. Where weights lie beside a
/// config.json, the headers of their safetensors files are held against it. Error: everything that is wrong with the
/// file; weights whose shapes are not those of the configuration; one sentence that says what a file is, or what a
/// folder has, where that is no model.
Result<ModelSpec> read_model_file(const std::string& path);

}  // namespace fsdp
