#pragma once

// config.json of Hugging Face transformers as a model: the blocks of this program for the model that from_config
// builds. docs/file_formats.md, "Models of Hugging Face", lists the keys.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// The start of a note about settings of the file that the plan ignores. Every answer prints these notes.
inline constexpr std::string_view kHfNote = "config.json";

/// Whether a document is a config.json: it has "model_type" or "architectures", and is no file of this program.
bool is_hf_config(const JsonDocument& document);

/// The model of a config.json, as a spec whose places are those of that file. `weights_dtype`: the dtype of the weights
/// beside it, used if the file has none. Errors: an architecture without blocks here; every key that the blocks cannot
/// express, with the values that they can.
Result<ModelSpec> read_hf_config(const JsonDocument& document, std::optional<Dtype> weights_dtype = {});

/// "bert", "gemma2", ...: every supported "model_type".
std::vector<std::string> hf_model_types();

}  // namespace fsdp
