#pragma once

// The expanded model as JSON: every module, tensor and op of one forward pass with all sizes as numbers. A program
// that builds the real model reads it. docs/file_formats.md, "Expanded models", describes the keys.

#include <string>
#include <string_view>

#include "core/base/json_writer.h"
#include "core/model/model.h"

namespace fsdp {

inline constexpr std::string_view kExpandedModelFormatVersion = "1.0";

/// The model as one JSON object. Blocks are written out: each call has ops and tensors of its own.
/// REQUIRES: a model that is whole, as `build_model` gives it.
void write_expanded_model(JsonWriter& writer, const Model& model);

/// The same as a text.
std::string expanded_model_text(const Model& model);

}  // namespace fsdp
