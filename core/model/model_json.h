#pragma once

// The expanded model as JSON: every module, tensor and op of one forward pass, with all sizes as numbers. Programs that
// build the real model read it. docs/file_formats.md, "Expanded models", describes the keys.

#include <string>
#include <string_view>

#include "core/base/json_writer.h"
#include "core/model/model.h"

namespace fsdp {

inline constexpr std::string_view kExpandedModelFormatVersion = "1.0";

/// The model as one JSON object. Expands blocks: each call has its own ops and tensors. REQUIRES: a complete model, as
/// `build_model` returns it.
void write_expanded_model(JsonWriter& writer, const Model& model);

/// The same as a text.
std::string expanded_model_text(const Model& model);

}  // namespace fsdp
