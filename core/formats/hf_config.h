#pragma once

// config.json of Hugging Face transformers as a model: what its from_config would build, in the blocks of this program.
// docs/file_formats.md, "Models of Hugging Face", says what is read.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// How a note on a translated model begins: what the file says and the plan does not hear. Every answer prints them.
inline constexpr std::string_view kHfNote = "config.json";

/// Whether a document is one: it names a "model_type" or "architectures", and is no file of this program.
bool is_hf_config(const JsonDocument& document);

/// The model of a config.json, as a spec whose places are those of that file. `weights_dtype` is that of the weights
/// beside it, which counts where the file states none. Errors: an architecture that has no blocks here; every key that
/// asks for what they cannot say, with what they can.
Result<ModelSpec> read_hf_config(const JsonDocument& document, std::optional<Dtype> weights_dtype = {});

/// "bert", "gemma2", ...: every "model_type" that is read.
std::vector<std::string> hf_model_types();

}  // namespace fsdp
